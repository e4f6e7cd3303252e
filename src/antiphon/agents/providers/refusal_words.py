"""Codes and words by which providers say why they refuse a request."""

import re
from typing import Final


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pattern(*parts: str) -> "re.Pattern[str]":
    return re.compile("|".join(parts))


STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "resource_exhausted": 429,
    "internal": 500,
    "unavailable": 503,
}
"""What Anthropic's and Google's types are as a status."""
TOO_LONG_CODES: Final = _codes(
    "context_length_exceeded exceed_context_size_error model_context_window_exceeded request_too_large "
    "string_above_max_length context_window_exceeded max_context_length_exceeded prompt_too_long input_too_long "
    "context_too_long payload_too_large request_entity_too_large tokens_limit_reached contextlengthexceeded"
)
QUOTA_CODES: Final = _codes(
    "insufficient_quota billing_hard_limit_reached billing_not_active billing_error insufficient_balance "
    "insufficient_credits credit_limit_reached payment_required quota_exceeded exceeded_current_quota_error"
)
RATE_CODES: Final = _codes("rate_limit_exceeded rate_limit_error requests tokens too_many_requests throttlingexception")
FILTER_CODES: Final = _codes(
    "content_filter content_policy_violation responsibleaipolicyviolation content_filtered moderation "
    "data_inspection_failed prohibited_content safety invalid_prompt sensitive_words_detected"
)
KEY_CODES: Final = _codes(
    "invalid_api_key authentication_error permission_error invalid_authentication api_key_invalid"
)
MODEL_CODES: Final = _codes("model_not_found model_not_available invalid_model unknown_model not_found_error")
AGAIN_CODES: Final = _codes("tool_use_failed json_validate_failed overloaded_error server_overloaded")
"""The model's own attempt failed; another one may not."""
IMAGE_CODES: Final = _codes(
    "invalid_image invalid_image_format invalid_base64_image invalid_image_url image_too_large image_too_small "
    "image_parse_error image_content_policy_violation invalid_image_mode image_file_too_large "
    "unsupported_image_media_type empty_image_file failed_to_download_image image_file_not_found"
)

_SIZE = (
    r"(?:context|prompt|input|inputs|request|messages?|conversation|tokens?|payload|body|sequence|text|content|query)"
)
TOO_LONG: Final = (
    _pattern(rf"\b{_SIZE}\b[^.\n]{{0,60}}\b(?:is|are|was|were|got|seems?)? ?(?:much |far )?too (?:long|large|big)\b"),
    _pattern(r"\btoo (?:long|large|big|many tokens)\b[^.\n]{0,30}\bfor (?:the |this |requested )?(?:model|context)"),
    _pattern(r"\b(?:prompt|input|context|message|request) (?:too|is too) (?:long|large|big)\b"),
    _pattern(r"\btoo many (?:input |prompt |total |context )?tokens\b"),
    _pattern(
        r"\bcontext[ _-]?(?:length|size|window|limit)?\b[^\n]{0,60}\b(?:exceed|overflow|overrun|too (?:small|long)"
        r"|is full|reached|surpass|out of|not enough)"
    ),
    _pattern(
        r"\b(?:exceed\w*|overflow\w*|greater than|larger than|longer than|more than|bigger than|beyond|over|surpass\w*"
        r"|above|outside|fits?(?: in(?:to)?)?)\b[^\n]{0,60}"
        r"\b(?:context|n_ctx|max_model_len|max_seq_len|max(?:imum)? (?:context|input|prompt|sequence|request|number of"
        r"(?: \w+)? tokens|length|size|allowed)|token limit|tokens? (?:limit|allowed|maximum)"
        r"|model'?s? (?:limit|maximum|length)"
        r"|window|limit of [\d,]+ (?:input )?tokens|input length|allowed (?:size|length))"
    ),
    _pattern(r"\bmax(?:imum)?[ _](?:context|prompt|input|sequence|allowed input)[ _](?:length|size|tokens?|window)\b"),
    _pattern(
        r"\b(?:reduce|shorten|trim|truncate|decrease)\b[^.\n]{0,30}\b(?:length|size|prompt|input|messages|conversation|history)"
    ),
    _pattern(
        r"\btoken (?:limit|count|budget)\b[^\n]{0,60}\b(?:exceed|reached|surpass|over)",
        r"\bexceed\w* (?:the |your )?token",
    ),
    _pattern(r"\brange of input length\b", r"\binput length\b[^\n]{0,40}\b(?:should|must) be\b"),
    _pattern(
        r"\b\d[\d,]{0,20} (?:prompt |input )?tokens?\b[^\n]{0,60}\b(?:but|only|limit|max|>|exceed)[^\n]{0,60}[\d,]+"
    ),
    _pattern(
        r"\bcontext (?:length|size|window)\b[^\n]{0,10}\bis (?:only )?[\d,]+", r"\btokens`?[^\n]{0,40}\bmust be <="
    ),
    _pattern(r"\b(?:more|longer|larger|bigger) than (?:the|this|that) (?:model|endpoint|server|api)\b"),
    _pattern(r"\b(?:kv|prompt) cache\b[^\n]{0,40}\b(?:full|exceed|too small|space)"),
    _pattern(
        r"\b(?:does|do|did|can|could|will)(?: not|n't|not) fit\b(?! (?:the |a |its )?(?:pattern|schema|format|type)\b)"
    ),
    _pattern(r"(?:超过|超出|过长|太长)[^\n]{0,40}(?:长度|上下文|限制|token)?"),
    _pattern(
        r"\b(?:entity|payload|body|request) too large\b",
        r"\brequest exceeds the maximum (?:allowed )?(?:number of bytes|size)\b",
    ),
)
"""Words for a conversation that is too long. Those of rate limits are looked for first."""
OUT_OF_TIME: Final = _pattern(r"\bcontext (?:deadline exceeded|cancell?ed)\b")
"""What servers written in Go say of a call that took too long; their contexts are not the model's."""
LONG_TEXT: Final = _pattern(r"(?:content|text|input|prompt|output|arguments)$")
"""A parameter that is a text of the conversation."""
LIMIT_AND_REQUESTED: Final = _pattern(r"\blimit:? ([0-9][0-9,_]*),? (?:used:? [\d,_]+,? )?requested:? ([0-9][0-9,_]*)")
RATE: Final = _pattern(
    r"\brate[ _-]?limit", r"\btoo many requests\b", r"\bthrottl", r"\bper (?:min|minute|day|hour|second)\b"
)
LATER: Final = _pattern(r"\b(?:please )?(?:retry|try again|wait)\b[^\n]{0,20}\b[\d.]+ ?m?s", r"retrydelay")
QUOTA: Final = _pattern(
    r"\binsufficient (?:\w+ )?(?:quota|balance|credits?|funds)\b",
    r"\bexceeded your current quota\b",
    r"\bcredit balance is too low\b",
    r"\bout of credits\b",
    r"\b(?:requires|add) more credits\b",
    r"\bbilling (?:hard )?limit\b",
    r"\busage limits?\b[^\n]{0,40}\b(?:reached|exceeded)",
    r"\bspend(?:ing)? limit\b",
)
KEY: Final = _pattern(
    r"\bapi[ _-]?key\b[^\n]{0,30}\b(?:not valid|invalid|expired|incorrect|missing)",
    r"\b(?:invalid|incorrect) api[ _-]?key",
)
NO_MODEL: Final = _pattern(
    r"\bmodel\b[^\n]{0,80}\b(?:does not exist|doesn't exist|not found|is not (?:found|available|loaded)|unknown)",
    r"\b(?:not a valid|invalid|unknown|no such) model\b",
)
FILTERED: Final = _pattern(
    r"\bcontent (?:management |filter(?:ing)? )polic",
    r"\bcontent[ _]filter",
    r"\bflagged\b",
    r"\bmoderation\b",
    r"\bsafety system\b",
)
TEMPLATE: Final = _pattern(
    r"\broles must alternate\b",
    r"\bunexpected role\b",
    r"\braise_exception\b",
    r"\bjinja\b",
    r"\bexpected last role\b",
    r"\bchat template\b",
)
"""Templates of models refuse an order of messages, some with a status of a failed server."""
IMAGE: Final = _pattern(
    r"\bimages?\b",
    r"\bimage_url\b",
    r"\bvision\b",
    r"\bmultimodal\b",
    r"\bmmproj\b",
    r"\bphotos?\b",
    r"\bpictures?\b",
    r"图片|图像",
)
UNSUPPORTED: Final = _pattern(
    r"\b(?:not|n't|no|cannot|without|only)\b[^\n]{0,60}\b(?:support|accept|handle|allow|process|enabled?|capab|compatible)",
    r"\bsupport\w*\b[^\n]{0,20}\bonly text",
    r"\bunsupported\b[^\n]{0,30}\b(?:content|modality|input|part|type)",
    r"\bno endpoints\b",
    r"\btext[ -]only\b",
    r"\b(?:not|n't) a (?:vision|multimodal)\b",
    r"\b(?:mmproj|image input)\b[^\n]{0,60}\b(?:not|provide|missing|hint)",
    r"\bunknown variant\b",
)
FORMAT: Final = _pattern(
    r"\b(?:could|can)(?: not|n't|not) process\b",
    r"\bformat\b",
    r"\bmedia[ _]type\b",
    r"\bmime",
    r"\bcorrupt",
    r"\bdecod",
)
TOO_MANY: Final = _pattern(
    r"\btoo (?:many|large|big|much)\b",
    r"\b(?:at most|up to|maximum|max|limit|more than|no more)\b",
    r"\bexceed",
    r"\bpixels?\b",
    r"\bdimensions?\b",
)
ENTRIES: Final = _pattern(r"messages?", r"input", r"prompt", r"content", r"body", r"max_(?:completion_)?tokens")
