"""The send policy's decisions on a session. Contract: send_policy 3."""

from antiphon.domain.keys import SessionKind
from antiphon.domain.session import SendOverride, SessionSummary
from antiphon.engine.rules import Rules
from antiphon.policy.decision import ALLOW, Decision
from antiphon.policy.send import SendFacts, decide_send
from antiphon.store.codec import stored_key
from antiphon.store.sessions import SessionHead


def may_send(session: SessionSummary, rules: Rules) -> Decision:
    return decide_send(
        rules.send_policy,
        SendFacts(
            key=str(session.key),
            channel=session.delivery.channel or session.key.channel or "unknown",
            chat_type=chat_type(session),
            override=session.send_policy,
        ),
    )


def may_post(session: SessionHead, rules: Rules, *, from_channel: str | None) -> Decision:
    """Like `may_send`, from the head of a session's row, for messages that people and programs post.

    The first message of a session without a channel gives it its own, so it is judged by that one already.
    """
    if session.send_policy is None and rules.send_policy.is_off:
        return ALLOW
    key = stored_key(session.key)
    return decide_send(
        rules.send_policy,
        SendFacts(
            key=session.key,
            channel=session.channel or key.channel or from_channel or "unknown",
            chat_type=session.type if key.chat_type is None else key.chat_type.value,
            override=None if session.send_policy is None else SendOverride(session.send_policy),
        ),
    )


def chat_type(session: SessionSummary) -> str:
    """`direct | group | channel`, from the key if it says so."""
    if session.key.chat_type is not None:
        return session.key.chat_type.value
    return "group" if session.key.kind is SessionKind.GROUP else session.source.type.value
