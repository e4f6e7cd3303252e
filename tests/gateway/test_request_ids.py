"""The id of each request: in its answer, and in the log lines from the request to the run that it causes."""

import httpx
import pytest

from antiphon.domain.ids import RunId
from antiphon.request_ids import MAX_REMEMBERED, ServingRequest, current_request_id, executing_run, note_run
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import new_client, serve

pytestmark = pytest.mark.anyio

NAME = "X-Request-Id"


@requirement("gateway:5")
async def test_every_answer_has_the_id_of_its_request(open_home: OpenHome) -> None:
    async with serve(open_home) as served, new_client(served.url) as stranger:
        answers = [
            await client.get(path)
            for client in (served.client, stranger)
            for path in ("/health", "/sessions", "/nowhere", "/static/conversation.js")
        ]
        answers.append(await served.client.get("/health", headers={"Host": "elsewhere"}))
        ids = [answer.headers[NAME] for answer in answers]
        assert {answer.status_code for answer in answers} == {200, 401, 403, 404}
        assert len(set(ids)) == len(ids) and all(id.startswith("req_") for id in ids)


@requirement("gateway:5")
@pytest.mark.parametrize(
    ("offered", "is_taken"),
    [
        ("web-42", True),
        ("A.b_c-9" + "x" * 57, True),
        ("x" * 65, False),
        ("", False),
        ("a b", False),
        ("a\tb", False),
        ("ü", False),
        ("a,b", False),
        ('a"} {"level":"error', False),
    ],
)
async def test_an_id_is_taken_only_if_it_is_well_formed(open_home: OpenHome, offered: str, *, is_taken: bool) -> None:
    async with serve(open_home) as served:
        answer = await served.client.get("/health", headers={NAME.encode(): offered.encode("latin-1")})
        assert (answer.headers[NAME] == offered) is is_taken
        assert is_taken or answer.headers[NAME].startswith("req_")


@requirement("gateway:5")
async def test_of_several_ids_none_is_taken(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        twice = httpx.Headers([(NAME, "one"), (NAME, "two")])
        answer = await served.client.get("/health", headers=twice)
        assert answer.headers.get_list(NAME)[0].startswith("req_") and len(answer.headers.get_list(NAME)) == 1


def test_a_run_remembers_the_request_that_asked_for_it() -> None:
    first, child, alone = RunId("run_1"), RunId("run_2"), RunId("run_3")
    with ServingRequest("web-1"):
        note_run(first, current_request_id())
    note_run(alone, current_request_id())
    with executing_run(first):
        assert current_request_id() == "web-1"
        note_run(child, current_request_id())
    for run_id, request_id in ((child, "web-1"), (alone, None), (RunId("run_of_another_process"), None)):
        with ServingRequest("other"), executing_run(run_id):
            assert current_request_id() == request_id
    with ServingRequest("web-2"):
        for number in range(MAX_REMEMBERED):
            note_run(RunId(f"run_later_{number}"), current_request_id())
    with executing_run(first):
        assert current_request_id() is None
