"""A view of the page: what its main part shows instead of a conversation."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from markupsafe import Markup
from msgspec import Struct
from starlette.responses import HTMLResponse, Response

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.binding import Binding
from antiphon.gateway.operations.operation import (
    AnyOperation,
    Http,
    Operation,
    OperationRequest,
    Params,
    TargetKind,
    types_of,
)
from antiphon.gateway.page.rendering import html_response, render
from antiphon.policy.acts import Act

P = TypeVar("P", bound=Params)
Show = Callable[[OperationRequest, P], Awaitable[Markup]]


class PageView(Struct, frozen=True, kw_only=True):
    """One view, at `/?view=<name>` with its parameters."""

    name: str
    title: str
    scope: TokenScope
    act: Act | None
    """The navigation offers the view to those who may do this; None for everybody."""
    is_listed: bool
    """Whether the navigation offers it; links lead to the others."""
    operation: AnyOperation
    """`pages.<name>`, which answers `GET /page/<name>` with the main part alone."""
    show: Show[Any]

    async def shown(self, request: OperationRequest) -> Markup:
        """The main part of the page, with the parameters in the query of the request. Raises what `show` raises."""
        params = await Binding(self.operation.params, self.operation.http).read(request.on_http)
        return self.framed(await self.show(request, params))

    def framed(self, content: Markup) -> Markup:
        return render("view.html", {"view": self, "content": content})

    async def is_offered(self, request: OperationRequest) -> bool:
        """Whether the navigation names the view to this reader."""
        if not self.is_listed or self.scope not in request.scopes:
            return False
        return self.act is None or await request.services.people.may(request.principal, self.act)


def page_view(
    name: str,
    title: str,
    *,
    scope: TokenScope = TokenScope.READ,
    act: Act | None = None,
    is_listed: bool = True,
) -> Callable[[Show[P]], PageView]:
    """Makes a view from a function that renders its content; the function checks the rights of the reader itself.

    Its hints are the types of the view.
    """

    def made(show: Show[P]) -> PageView:
        async def answer(request: OperationRequest, params: P) -> HTMLResponse:
            return html_response("main.html", {"content": view.framed(await show(request, params))})

        view = PageView(
            name=name,
            title=title,
            scope=scope,
            act=act,
            is_listed=is_listed,
            operation=_operation(name, types_of(name, show)[0], scope, answer),
            show=cast("Show[Any]", show),
        )
        return view

    return made


def _operation(
    name: str, params: type[P], scope: TokenScope, handle: Callable[[OperationRequest, P], Awaitable[Response]]
) -> AnyOperation:
    return Operation(
        name=f"pages.{name}",
        params=params,
        answer=Response,
        scope=scope,
        target=TargetKind.NONE,
        http=Http(f"GET /page/{name}", media_type="text/html", is_lenient=True),
        serves_bound=False,
        handle=handle,
        description=f"The view {name!r} of the page.",
    )
