"""Join links in the terminal, as a code to scan."""

from io import StringIO

from antiphon.cli.rendering.output import show
from antiphon.domain.message import JsonObject


def show_join_link(answer: JsonObject) -> None:
    """Shows the link, and draws it if the package that draws is installed."""
    link = str(answer["link"])
    try:
        import segno
    except ModuleNotFoundError:
        pass  # the link is enough
    else:
        drawn = StringIO()
        segno.make(link).terminal(drawn, compact=True)
        show(drawn.getvalue())
    show(link)
    show("Scan it, or open it, within ten minutes. It works once.")
