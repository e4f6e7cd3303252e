"""The send policy. Cases K."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.session import SendOverride
from antiphon.policy.decision import Allow
from antiphon.policy.send import SendAction, SendFacts, SendPolicy, SendRule, decide_send
from tests.claims import requirement

ALLOW, DENY = SendAction.ALLOW, SendAction.DENY
GROUP = SendFacts(key="agent:main:discord:group:dev", channel="discord", chat_type="group", override=None)
CRON = SendFacts(key="agent:main:cron:job-1", channel="internal", chat_type=None, override=None)


def may(policy: SendPolicy, facts: SendFacts) -> bool:
    return isinstance(decide_send(policy, facts), Allow)


@requirement("send_policy:1")
@pytest.mark.parametrize(
    ("rules", "default", "facts", "is_allowed"),
    [
        ([], ALLOW, GROUP, True),
        ([SendRule(action=DENY, channel="discord", chat_type="group")], ALLOW, GROUP, False),
        ([SendRule(action=DENY, channel="Discord")], ALLOW, GROUP, False),
        ([SendRule(action=DENY, channel="discord", chat_type="direct")], ALLOW, GROUP, True),
        ([SendRule(action=DENY, key_prefix="cron:")], ALLOW, CRON, False),
        ([SendRule(action=DENY, key_prefix="AGENT:main:cron:")], ALLOW, CRON, False),
        ([SendRule(action=DENY, key_prefix="cron:job-2")], ALLOW, CRON, True),
        ([SendRule(action=ALLOW, key_prefix="cron:")], DENY, CRON, True),
        ([SendRule(action=ALLOW, key_prefix="cron:")], DENY, GROUP, False),
        ([SendRule(action=ALLOW), SendRule(action=DENY, channel="discord")], ALLOW, GROUP, False),
        ([SendRule(action=DENY, channel="discord"), SendRule(action=ALLOW)], ALLOW, GROUP, False),
        ([SendRule(action=DENY)], ALLOW, GROUP, False),
    ],
)
def test_a_deny_goes_before_an_allow_and_both_before_the_default(
    rules: list[SendRule], default: SendAction, facts: SendFacts, *, is_allowed: bool
) -> None:
    assert may(SendPolicy(rules=tuple(rules), default=default), facts) is is_allowed


ANY_RULE = st.builds(
    SendRule,
    action=st.sampled_from(SendAction),
    channel=st.sampled_from([None, "discord", "internal"]),
    chat_type=st.sampled_from([None, "group", "direct"]),
    key_prefix=st.sampled_from([None, "cron:", "agent:main:", "discord:"]),
)
POLICIES = st.builds(SendPolicy, rules=st.lists(ANY_RULE, max_size=5).map(tuple), default=st.sampled_from(SendAction))


@requirement("send_policy:1")
@given(POLICIES, st.sampled_from([GROUP, CRON]), st.sampled_from(SendOverride))
def test_the_sessions_own_setting_goes_before_all_rules(
    policy: SendPolicy, facts: SendFacts, override: SendOverride
) -> None:
    overridden = SendFacts(key=facts.key, channel=facts.channel, chat_type=facts.chat_type, override=override)
    assert may(policy, overridden) is (override is SendOverride.ALLOW)


@requirement("send_policy:1")
@given(POLICIES, ANY_RULE, st.sampled_from([GROUP, CRON]))
def test_one_more_deny_never_allows_more_and_order_does_not_matter(
    policy: SendPolicy, rule: SendRule, facts: SendFacts
) -> None:
    more = SendPolicy(rules=(*policy.rules, SendRule(action=DENY, channel=rule.channel)), default=policy.default)
    assert may(policy, facts) or not may(more, facts)
    assert may(policy, facts) is may(SendPolicy(rules=policy.rules[::-1], default=policy.default), facts)
