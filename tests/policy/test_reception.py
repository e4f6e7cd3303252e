from itertools import product

import pytest

from antiphon.policy.chats import ChannelAccess
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

EVERY_KNOCK = [
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
    suspended = [knock for knock in EVERY_KNOCK if knock.is_suspended]
    assert {decide_admission(knock) for knock in suspended} == {Admission.IGNORE}


@requirement("access:3")
def test_a_stranger_enters_a_direct_chat_only_where_everybody_may() -> None:
    for knock in EVERY_KNOCK:
        if knock.group is None and decide_admission(knock) is Admission.ENTER:
            assert knock.is_admitted or knock.access is ChannelAccess.PUBLIC


@requirement("access:3")
def test_a_stranger_gets_a_code_only_if_few_wait_and_none_was_given_lately() -> None:
    for knock in EVERY_KNOCK:
        for decide in (decide_admission, decide_after_wrong_code):
            if decide(knock) is Admission.PAIR:
                assert knock.access is ChannelAccess.PAIRING
                assert not knock.was_told and not knock.is_waiting
                assert knock.open_pairings < MOST_PAIRINGS


@requirement("access:3")
def test_a_sender_who_has_tried_five_wrong_codes_redeems_none() -> None:
    locked = [knock for knock in EVERY_KNOCK if knock.wrong_codes >= MOST_WRONG_CODES]
    assert Admission.REDEEM not in {decide_admission(knock) for knock in locked}


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
    knocks = [knock for knock in EVERY_KNOCK if knock.group is group and not knock.is_suspended]
    assert {decide_admission(knock) for knock in knocks} == {admission}
