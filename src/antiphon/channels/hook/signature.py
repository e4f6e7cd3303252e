"""Proves that a message of a hook comes from its sender, by one of the signatures that programs send.

Contract: channels 1.
"""

import hashlib
import re
from collections.abc import Mapping

from antiphon.channels.hook.settings import HookSignature
from antiphon.channels.signature import TIME_HEADER, Direction, bad_signature, check_age, check_form, is_signed, verify

HUB_HEADER = "X-Hub-Signature-256"
STRIPE_HEADER = "Stripe-Signature"
_HUB = re.compile(r"sha256=([0-9a-f]{64})")
_STRIPE = re.compile(r"t=([0-9]{1,12})((?:,v[0-9]=[0-9a-f]{64}){1,8})")


def forms_of(headers: Mapping[str, str]) -> list[HookSignature]:
    """The signatures whose forms the headers (with lower-case names) have; raises `Unproven` if they have none.

    They do not depend on the hook, so that a hook that does not exist is answered like one that does.
    """
    forms: list[HookSignature] = []
    if _HUB.fullmatch(headers.get(HUB_HEADER.lower(), "")):
        forms.append(HookSignature.GITHUB)
    if _STRIPE.fullmatch(headers.get(STRIPE_HEADER.lower(), "")):
        forms.append(HookSignature.STRIPE)
    if not forms or TIME_HEADER.lower() in headers:
        check_form(headers, Direction.HOOK)
        forms.append(HookSignature.ANTIPHON)
    return forms


def verify_hook(
    secret: str, name: str, signature: HookSignature, headers: Mapping[str, str], *, body: bytes, now: float
) -> str:
    """An id made of what was signed: equal for a repetition, and different for everything else.

    Raises `Unproven` unless the headers sign this body with the secret. Contract: channels 1.
    """
    match signature:
        case HookSignature.ANTIPHON:
            verify(secret, name, headers, body, now=now, direction=Direction.HOOK)
            return hashlib.sha256(f"{headers[TIME_HEADER.lower()]}.".encode() + body).hexdigest()
        case HookSignature.GITHUB:
            found = _HUB.fullmatch(headers.get(HUB_HEADER.lower(), ""))
            if found is None or not is_signed(secret, body, found[1]):
                raise bad_signature(Direction.HOOK)
        case HookSignature.STRIPE:
            _verify_stripe(secret, headers, body, now)
    return hashlib.sha256(body).hexdigest()


def _verify_stripe(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> None:
    found = _STRIPE.fullmatch(headers.get(STRIPE_HEADER.lower(), ""))
    if found is None:
        raise bad_signature(Direction.HOOK)
    signed = f"{found[1]}.".encode() + body
    given = [each.removeprefix("v1=") for each in found[2].split(",") if each.startswith("v1=")]
    if not any(is_signed(secret, signed, each) for each in given):
        raise bad_signature(Direction.HOOK)
    check_age(found[1], now)
