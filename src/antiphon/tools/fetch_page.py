"""`fetch_page`: reads pages of the web. Contract: flow 7, 10, shipped tools."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from antiphon.domain.agent import Effect
from antiphon.domain.approval import DerivedField
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Invalid
from antiphon.domain.page_address import PageAddress, parse_page_address
from antiphon.engine.access.caller import Caller, context_of
from antiphon.engine.access.callers import Callers
from antiphon.engine.rules import Rules
from antiphon.policy.approvals import decide_call
from antiphon.policy.decision import Allow, Deny
from antiphon.policy.flow import is_untrusted
from antiphon.policy.shipped_tools import FETCH_PAGE
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.tools.web.pages import MAX_CHARACTERS, PageAnswer, Pages

MAX_PAGES = 5
DESCRIPTION = (
    "Reads web pages and returns their title and text (HTML, plain text, JSON). Name all the pages you need in one "
    "call: after the first, a person may have to approve each further call."
)


class FetchArguments(Arguments):
    routes = ("urls",)
    urls: tuple[str, ...] = Field(
        min_length=1, max_length=MAX_PAGES, description="Up to 5 addresses, beginning with https:// or http://."
    )
    part: int = Field(1, ge=1, description="Which part of long pages, from 1; the answer says how many there are.")

    @field_validator("urls")
    @classmethod
    def _are_addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            try:
                parse_page_address(url)
            except Invalid as error:
                raise ValueError(error.message) from error
        return urls

    @property
    def addresses(self) -> list[PageAddress]:
        """Each once."""
        return list(dict.fromkeys(map(parse_page_address, self.urls)))

    def derived(self) -> tuple[DerivedField, ...]:
        sites = tuple(sorted({address.site for address in self.addresses}))
        return (DerivedField(name="host", of="urls", values=sites, means=f"every page of {' and of '.join(sites)}"),)


_EFFECTS = frozenset({Effect.READS, Effect.LEAVES})


def fetch_page(callers: Callers, pages: Pages, rules: Rules) -> SessionTool[FetchArguments]:
    async def carry_out(caller: Caller, arguments: FetchArguments) -> ClassifiedAnswer:
        addresses = arguments.addresses
        answers = await pages.read(
            addresses,
            part=arguments.part,
            most=MAX_CHARACTERS // len(addresses),
            stays=await _stays_with_hosts(callers, caller, rules),
        )
        return ClassifiedAnswer(_shown(answers), made_of_pages(answers))

    def check(arguments: FetchArguments) -> Deny | None:
        return pages.refuse(arguments.addresses)

    found = SessionTool(
        FETCH_PAGE,
        DESCRIPTION,
        FetchArguments,
        carry_out,
        codes=PAGE_CODES,
        effects=_EFFECTS,
        is_idempotent=False,  # asking for a page tells its host something: a call of unknown outcome is not repeated
    ).checked_by(check)
    found.classification = PUBLIC.distrusted()
    return found


PAGE_CODES = (
    "page_refused",
    "page_unreachable",
    "page_elsewhere",
    "page_status",
    "page_timeout",
    "page_too_large",
    "page_type",
    "page_unreadable",
    "page_part",
)


async def _stays_with_hosts(callers: Callers, caller: Caller, rules: Rules) -> bool:
    """Whether redirects must stay with the hosts that the call names.

    So they must if somebody is asked about hosts, or if words of others may have made the call.
    """
    _, standing = await callers.session_of(caller)
    need = decide_call(rules.approval, FETCH_PAGE, _EFFECTS, standing, is_from_server=False)
    return not isinstance(need, Allow) or await has_read_others(callers, caller)


async def has_read_others(callers: Callers, caller: Caller) -> bool:
    """Whether words of others may have made the call."""
    session, standing = await callers.session_of(caller)
    return is_untrusted(context_of(caller, session), standing)


def made_of_pages(answers: list[PageAnswer]) -> Classification:
    """What the answers add: nothing that is distrusted as long as no host has said a word."""
    return PUBLIC if all(each.is_own for each in answers) else PUBLIC.distrusted()


def _shown(answers: list[PageAnswer]) -> Mapping[str, Any]:
    if any(each.is_read for each in answers):
        return {"status": "ok", "pages": [each.shown for each in answers]}
    first = answers[0].shown
    failure = {"status": first["status"], "code": first["code"], "error": first["error"]}
    return failure if len(answers) == 1 else {**failure, "pages": [each.shown for each in answers]}
