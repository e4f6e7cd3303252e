"""The views of the page, in the order of its navigation."""

from antiphon.domain.errors import NotFound
from antiphon.gateway.page.chat_routes import show_routes
from antiphon.gateway.page.costs import show_costs
from antiphon.gateway.page.home import show_home
from antiphon.gateway.page.memory import show_memory
from antiphon.gateway.page.page_view import PageView
from antiphon.gateway.page.people import show_people, show_tokens
from antiphon.gateway.page.session import show_details
from antiphon.gateway.page.tasks import show_task, show_tasks
from antiphon.gateway.page.tree import show_tree

VIEWS: tuple[PageView, ...] = (
    show_home,
    show_tasks,
    show_memory,
    show_costs,
    show_people,
    show_routes,
    show_tokens,
    show_tree,
    show_details,
    show_task,
)


def find_view(name: str) -> PageView:
    """Raises `NotFound`."""
    for view in VIEWS:
        if view.name == name:
            return view
    raise NotFound(f"View not found: {name[:60]!r}. The links above the list of sessions lead to the views.")
