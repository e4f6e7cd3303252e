"""A web service of your own, with Antiphon inside: it streams each reply to its client."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import antiphon


async def chat(request: Request) -> StreamingResponse:
    app: antiphon.Antiphon = request.app.state.antiphon
    session = await app.sessions.open(request.path_params["customer"])
    body = await request.json()
    run = await session.post(body["text"], message_id=body.get("id"))

    async def pieces() -> AsyncIterator[str]:
        async for piece in run.stream():
            yield f"data: {json.dumps({'text': piece.text, 'restart': piece.is_restart})}\n\n"

    return StreamingResponse(pieces(), media_type="text/event-stream")


async def not_found(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=404)


def service(home: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(web: Starlette) -> AsyncGenerator[None]:
        async with antiphon.open(home) as app:
            web.state.antiphon = app
            yield

    routes = [Route("/chat/{customer}", chat, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={antiphon.NotFound: not_found})
