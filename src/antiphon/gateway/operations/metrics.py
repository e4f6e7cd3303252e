"""The operation that measures the process. Contract: gateway 4."""

from starlette.responses import Response

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import Ask, Http, NoParams, operation
from antiphon.wire.metrics import MEDIA_TYPE, MetricsShape, metrics_text


@operation(
    "metrics.get",
    Http("GET /metrics", media_type="text/plain", is_lenient=True, serves_this_machine=True),
    scope=TokenScope.ADMIN,
)
async def read_metrics(ask: Ask, params: NoParams) -> MetricsShape | Response:
    """Returns the metrics of this process and of its database, in the text format of Prometheus."""
    text = metrics_text(await ask.services.measures.read(ask.who))
    return MetricsShape(text=text) if ask.http is None else Response(text, media_type=MEDIA_TYPE)
