"""Slack posts: signed requests to the gateway, as its documents say, and rude on demand."""

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

Json = dict[str, Any]
SIGNING_SECRET = "8f742231b10e8888abcd99eeefff85a5"
PATH = "/channels/slack/default"
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
PUBLIC_URL = "https://gateway.example.org"


def signature(body: bytes, time: str, secret: str = SIGNING_SECRET) -> str:
    return "v0=" + hmac.new(secret.encode(), f"v0:{time}:".encode() + body, hashlib.sha256).hexdigest()


def signed_headers(body: bytes, at: float, kind: str = JSON_TYPE, secret: str = SIGNING_SECRET) -> dict[str, str]:
    time = str(int(at))
    return {
        "Content-Type": kind,
        "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
        "X-Slack-Request-Timestamp": time,
        "X-Slack-Signature": signature(body, time, secret),
    }


def body_of(type: str, payload: Json) -> tuple[bytes, str]:
    """What is posted, and its type: events are JSON, commands are forms, and presses are JSON in one."""
    if type == "events_api":
        return json.dumps(payload).encode(), JSON_TYPE
    form = payload if type == "slash_commands" else {"payload": json.dumps(payload)}
    return urlencode(form).encode(), FORM_TYPE
