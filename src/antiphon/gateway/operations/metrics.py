"""The operation that measures the process. Contract: gateway 4."""

from starlette.responses import Response

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import Http, NoParams, OperationRequest, operation
from antiphon.wire.metrics import MEDIA_TYPE, MetricsShape, metrics_text


@operation(
    "metrics.get",
    Http("GET /metrics", media_type="text/plain", is_lenient=True, serves_this_machine=True),
    scope=TokenScope.ADMIN,
)
async def read_metrics(request: OperationRequest, params: NoParams) -> MetricsShape | Response:
    """Returns the metrics of this process and of its database, in the text format of Prometheus."""
    text = metrics_text(await request.services.measures.read(request.who))
    return MetricsShape(text=text) if request.http is None else Response(text, media_type=MEDIA_TYPE)
