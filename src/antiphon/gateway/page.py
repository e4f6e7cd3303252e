"""The web page at `/`."""

from fastapi import FastAPI
from fastapi.responses import HTMLResponse


def mount(api: FastAPI) -> None:
    """Adds the page's routes."""

    @api.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>Antiphon</title>")
