from itertools import product

import pytest
from msgspec.structs import replace

from antiphon.domain.channel_access import ChannelAccess
from antiphon.policy.reception import (
    MOST_PAIRINGS,
    MOST_WRONG_CODES,
    Admission,
    AdmissionRequest,
    GroupStanding,
    decide_admission,
    decide_after_wrong_code,
)
from tests.claims import requirement

EVERY_REQUEST = [
    AdmissionRequest(
        access=access,
        group=group,
        is_admitted=admitted,
        is_suspended=suspended,
        brings_code=code,
        wrong_codes=wrong,
        is_waiting=waiting,
        was_told=told,
        open_pairings=open_pairings,
    )
    for access, group, admitted, suspended, code, wrong, waiting, told, open_pairings in product(
        ChannelAccess,
        (None, *GroupStanding),
        (False, True),
        (False, True),
        (False, True),
        (0, MOST_WRONG_CODES),
        (False, True),
        (False, True),
        (0, MOST_PAIRINGS),
    )
]


@requirement("access:3")
def test_a_suspended_person_is_never_heard() -> None:
    suspended = [request for request in EVERY_REQUEST if request.is_suspended]
    assert {decide_admission(request) for request in suspended} == {Admission.IGNORE}


@requirement("access:3")
def test_a_stranger_enters_a_direct_chat_only_where_everybody_may() -> None:
    for request in EVERY_REQUEST:
        if request.group is None and decide_admission(request) is Admission.ENTER:
            assert request.is_admitted or request.access is ChannelAccess.PUBLIC


@requirement("access:3")
def test_a_stranger_gets_a_code_only_if_few_wait_and_none_was_given_lately() -> None:
    for request in EVERY_REQUEST:
        for decide in (decide_admission, decide_after_wrong_code):
            if decide(request) is Admission.PAIR:
                assert request.access is ChannelAccess.PAIRING
                assert not request.was_told and not request.is_waiting
                assert request.open_pairings < MOST_PAIRINGS


@requirement("access:3")
def test_a_sender_who_has_tried_five_wrong_codes_redeems_none() -> None:
    locked = [request for request in EVERY_REQUEST if request.wrong_codes >= MOST_WRONG_CODES]
    assert Admission.REDEEM not in {decide_admission(request) for request in locked}


@requirement("groups:1")
@pytest.mark.parametrize(
    ("group", "admission"),
    [
        (GroupStanding.ALLOWED, Admission.ENTER),
        (GroupStanding.UNKNOWN, Admission.ASK_OWNERS),
        (GroupStanding.CLOSED, Admission.IGNORE),
    ],
)
def test_a_group_is_open_to_its_members_once_an_owner_has_allowed_it(
    group: GroupStanding, admission: Admission
) -> None:
    requests = [request for request in EVERY_REQUEST if request.group is group and not request.is_suspended]
    assert {decide_admission(request) for request in requests} == {admission}


@requirement("groups:1")
def test_owners_are_asked_about_a_group_only_once_somebody_there_addresses_the_bot() -> None:
    requests = [request for request in EVERY_REQUEST if request.group is GroupStanding.UNKNOWN]
    asked = {decide_admission(replace(request, is_meant=False)) for request in requests}
    assert asked == {Admission.IGNORE}


@requirement("access:3")
def test_nobody_is_heard_whom_the_platform_does_not_prove() -> None:
    unproven = [replace(request, is_proven=False) for request in EVERY_REQUEST]
    assert {decide_admission(request) for request in unproven} == {Admission.TELL_OWNERS}
