"""The web service. Each request acts for the tenant of its token, and reaches only the sessions of its agent."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

import antiphon
from tenants.clerk import clerk_of
from tenants.settings import Settings
from tenants.shops import Shops

routes = APIRouter()


class Message(BaseModel):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    """Chosen by the client: it may send the message again after a failure, and it is answered once."""
    text: Annotated[str, Field(max_length=10_000)]


class Answer(BaseModel):
    run: str
    status: str
    reply: str | None


class Said(BaseModel):
    role: str
    text: str


class Question(BaseModel):
    id: str
    tool: str
    arguments: str
    reason: str


def app_of(request: Request) -> antiphon.Antiphon:
    return request.app.state.antiphon


def tenant_of(request: Request, authorization: Annotated[str, Header()] = "") -> str:
    shops: Shops = request.app.state.shops
    tenant = shops.tenant_of(authorization.removeprefix("Bearer "))
    if tenant is None:
        raise HTTPException(401, "This token belongs to nobody.")
    return tenant


App = Annotated[antiphon.Antiphon, Depends(app_of)]
Tenant = Annotated[str, Depends(tenant_of)]


async def own_run(app: App, tenant: Tenant, run: str) -> antiphon.RunHandle:
    """Raises a 404 also for the runs of others: nobody learns that they exist."""
    handle = app.run(run)
    if (await handle.status()).agent_id != tenant:
        raise antiphon.NotFound("Not found.")
    return handle


Run = Annotated[antiphon.RunHandle, Depends(own_run)]


@routes.post("/conversations/{name}")
async def post(app: App, tenant: Tenant, name: str, message: Message) -> Answer:
    """Stores the message, and starts its answer. Sent again, it returns the same run."""
    session = await app.sessions.open(f"agent:{tenant}:api:{name}")
    run = await session.post(message.text, message_id=message.id)
    return Answer(run=run.id, status="running", reply=None)


@routes.get("/conversations/{name}")
async def history(app: App, tenant: Tenant, name: str) -> list[Said]:
    session = await app.sessions.get(f"agent:{tenant}:api:{name}")
    messages = [event.message for event in await session.history()]
    return [Said(role=message.role, text=message.text) for message in messages if message is not None and message.text]


@routes.get("/runs/{run}")
async def result(run: Run, seconds: float = 20) -> Answer:
    """The answer, once there is one; `running` after that time."""
    try:
        ended = await run.wait(min(seconds, 60))
    except TimeoutError:
        return Answer(run=run.id, status="running", reply=None)
    return Answer(run=run.id, status=ended.status, reply=ended.reply)


@routes.get("/runs/{run}/pieces")
async def pieces(run: Run) -> StreamingResponse:
    """The answer as it is written."""

    async def events() -> AsyncGenerator[str]:
        async for piece in run.stream():
            yield f"data: {json.dumps({'text': piece.text, 'restart': piece.is_restart})}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@routes.get("/questions")
async def questions(app: App, tenant: Tenant) -> list[Question]:
    """What the shop's staff is asked."""
    asked: list[Question] = []
    before: str | None = None
    while page := await app.approvals.list(status="pending", limit=100, before=before):
        before = page[-1].id
        own = [each for each in page if each.agent_id == tenant]
        asked += [
            Question(id=each.id, tool=call.tool, arguments=call.arguments, reason=call.reason)
            for each in own
            for call in each.calls
        ]
    return asked


@routes.post("/questions/{id}")
async def decide(app: App, tenant: Tenant, id: str, decision: Literal["once", "deny"]) -> None:
    if (await app.approvals.get(id)).agent_id != tenant:
        raise antiphon.NotFound("Not found.")
    await app.approvals.decide(id, decision)


def not_found(_: Request, error: Exception) -> JSONResponse:
    """The same words for what does not exist and for what belongs to another tenant."""
    return JSONResponse({"detail": "Not found."}, status_code=404)


def conflict(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=409)


def service(settings: Settings) -> FastAPI:
    shops = Shops(settings.data)

    @asynccontextmanager
    async def lifespan(web: FastAPI) -> AsyncGenerator[None]:
        config = antiphon.Config.model_validate(
            {
                "database": {} if settings.database is None else {"url": settings.database},
                "tools": {"sessions": {"visibility": "self"}},
            }
        )
        clerks = [clerk_of(tenant, shops.of(tenant), settings) for tenant in shops.names]
        async with antiphon.open(settings.home, config=config, agents=clerks) as app:
            web.state.antiphon, web.state.shops = app, shops
            yield

    web = FastAPI(title="Tenants", lifespan=lifespan)
    web.include_router(routes)
    web.add_exception_handler(antiphon.NotFound, not_found)
    web.add_exception_handler(antiphon.Conflict, conflict)
    return web


def main() -> FastAPI:
    """For `uvicorn --factory tenants.web:main`."""
    return service(Settings.from_environment())
