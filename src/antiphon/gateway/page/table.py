"""What the page asks for, which is for people, not for programs, and so stands in a table of its own."""

from antiphon.gateway import page
from antiphon.gateway.operations.operation import declared_in
from antiphon.gateway.page.views import VIEWS

ROUTES = (*declared_in(page), *(view.operation for view in VIEWS))
