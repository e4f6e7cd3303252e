"""What refusals mean, beside those of `tests/world`: words that are near to others, and what bounds the reading."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from antiphon.agents.model import ModelErrorKind as Kind
from antiphon.agents.model import RefusedEntry
from antiphon.agents.providers.failures import ErrorAnswerOfModel, ModelFailure, classify, retry_after

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def meant(status: int, said: object, **more: Any) -> ModelFailure:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return classify(ErrorAnswerOfModel(status=status, body=body, **more), NOW)


def words(text: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": text, **more}}


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", Kind.REFUSED),
        (429, "Rate limit reached on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.", Kind.RATE_LIMITED),
        (429, "Request too large on tokens per min (TPM): Limit 10000, Requested 20000.", Kind.CONTEXT_TOO_LONG),
        (429, "Too many tokens, please wait before trying again.", Kind.RATE_LIMITED),
        (429, "You exceeded your current quota. Please retry in 20.5s", Kind.RATE_LIMITED),
        (429, "You exceeded your current quota, please check your plan.", Kind.QUOTA),
        (503, "The context service is temporarily overloaded", Kind.SERVER),
        (500, "Internal error: request timed out", Kind.SERVER),
        (404, "No endpoints found for x/y", Kind.NOT_FOUND),
        (403, "Your input was flagged by moderation", Kind.FILTERED),
        (403, "Forbidden", Kind.AUTHENTICATION),
        (400, "Invalid schema for function 'add'", Kind.REFUSED),
        (409, "Conflict", Kind.SERVER),
        (408, "Request timed out", Kind.SERVER),
        (418, "I am a teapot", Kind.REFUSED),
    ],
)
def test_words_that_are_near_to_others_are_told_apart(status: int, text: str, kind: Kind) -> None:
    assert meant(status, words(text)).kind is kind


@pytest.mark.parametrize("text", ["Could not process image", "Too many images", "this model does not support images"])
def test_words_about_images_count_only_for_a_prompt_with_images(text: str) -> None:
    assert meant(400, words(text), has_images=True).entry is not RefusedEntry.UNKNOWN
    assert meant(400, words(text)).entry is RefusedEntry.UNKNOWN


def test_a_refusal_without_words_may_be_for_its_size_only_if_it_is_larger_than_what_was_taken() -> None:
    assert meant(400, b"", sent_bytes=10, accepted_bytes=5).is_larger
    assert not meant(400, b"", sent_bytes=5, accepted_bytes=5).is_larger
    assert not meant(400, b"", sent_bytes=10).is_larger
    setting = words("Unsupported value", param="temperature")
    assert not meant(400, setting, sent_bytes=10, accepted_bytes=5).is_larger


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b"{",
        b"[" * 60_000,
        b'{"error": null}',
        b'{"error": {"message": {"a": [1, null, true]}}}',
        b'"' + b"context " * 8_000 + b'"',
        b"<" * 60_000,
        json.dumps({"error": {"message": "exceed " * 9_000}}).encode(),
        json.dumps({"error": {"metadata": {"raw": json.dumps({"raw": "{}"})}}}).encode(),
    ],
)
def test_any_body_is_read_in_bounded_time(body: bytes) -> None:
    began = time.perf_counter()
    for status in (200, 400, 413, 429, 500):
        failure = meant(status, body, has_images=True)
        assert isinstance(failure.kind, Kind) and failure.said
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e300"}, 365 * 24 * 3600),
        ({"retry-after": "Wed, 04 Mar 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ],
)
def test_a_pause_that_a_provider_asks_for_is_kept_within_bounds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
