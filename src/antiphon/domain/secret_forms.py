"""Secrets recognised by their form: tokens with a prefix, private keys, addresses that contain a password."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from antiphon.domain.spans import LONGEST_VALUE, LOOKAHEAD, MASK, CharacterRuns, Masks, Occurrences, Span
from antiphon.domain.tokens import OWNER_PREFIX, TOKEN_PREFIX

LONGEST_KEY = 64 * 1024
"""Characters of a private key in PEM form."""

_WORD = "[A-Za-z0-9_-]"
_DOTTED = "[A-Za-z0-9_.-]"
_ENCODED = "[A-Za-z0-9_.~+/=-]"
_ADDRESS = r"""[^\s"'`<>()\\{},;|]"""
_USER = r"[^\s/:@\"'<>]{0,100}"


class Form(NamedTuple):
    """A secret that begins with certain characters."""

    prefixes: tuple[str, ...]
    fewest: int
    """Fewest characters after the prefix."""
    characters: str = _WORD
    needs_digit: bool = False
    """Whether the first 64 of them must include a digit."""
    then: re.Pattern[str] | None = None
    """What must follow the prefix."""
    is_kept: bool = False
    """Whether the prefix stays in the redacted text."""


_BEARERS = ("Bearer", "bearer", "BEARER")
_LETTERS = "[A-Za-z0-9]"
_HEX_32 = re.compile("[0-9a-f]{32}")
_HEX_32_ALONE = re.compile("[0-9a-f]{32}(?![A-Za-z0-9])")
_UNLIKE_A_WORD = re.compile("[A-Za-z0-9_.~+/=-]{0,15}?(?:[0-9]|[a-z][A-Z])")
"""What a short token has within its first letters, and a word such as `responsibilities` has not."""
FORMS = (
    Form((f"{OWNER_PREFIX}_",), 32, then=_HEX_32),
    Form((f"{TOKEN_PREFIX}_",), 49, then=re.compile("[0-9a-f]{16,48}_[0-9a-f]{32}")),
    Form(("sk-", "rk-", "pk-"), 8, needs_digit=True),
    Form(("sk-ant-", "sk-proj-", "sk-or-", "sk-svcacct-"), 8),
    Form(("sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "pk_test_"), 8),
    Form(("whsec_",), 16, _ENCODED),
    Form(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), 20),
    Form(("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "glft-", "glagent-", "gloas-"), 10, _DOTTED),
    Form(("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xoxe.xoxb-", "xoxe.xoxp-", "xapp-"), 10),
    Form(("gsk_", "pplx-", "ya29."), 10),
    Form(("AIza",), 20),
    Form(("1//0",), 25),
    Form(("GOCSPX-",), 16),
    Form(("npm_",), 10, needs_digit=True),
    Form(("pypi-", "rubygems_", "r8_"), 24),
    Form(("hf_",), 16),
    Form(("SG.",), 20, _DOTTED),
    Form(("AKIA", "ASIA", "ABIA", "ACCA"), 16, "[A-Z0-9]", then=re.compile("[A-Z0-9]{16}(?![A-Za-z0-9])")),
    Form(("key-", "SK", "dapi"), 32, "[0-9a-f]", needs_digit=True, then=_HEX_32_ALONE),
    Form(("dop_v1_", "doo_v1_", "dor_v1_"), 24),
    Form(("shpat_", "shpss_", "shpca_", "shppa_", "sq0atp-", "sq0csp-", "sq0idp-"), 16),
    Form(("lin_api_", "figd_", "glsa_", "sntrys_", "sntryu_", "PMAK-", "secret_", "ntn_"), 24, needs_digit=True),
    Form(("dp.pt.", "dp.st.", "pul-", "nvapi-", "xai-", "fo1_", "tskey-"), 24, needs_digit=True),
    Form(("hvs.", "hvb.", "hvr."), 20),
    Form(("ATATT3x",), 20, _ENCODED),
    Form(("AGE-SECRET-KEY-1",), 20),
    Form(("HRKU-",), 20, needs_digit=True),
    Form(("ATCTT3x", "FwoGZXIvYXdzE", "IQoJb3JpZ2luX2"), 40, _ENCODED),
    Form(("EZAK", "EZTK"), 54, "[0-9a-f]"),
    Form(("EAA",), 50, _LETTERS, needs_digit=True),
    Form(("LTAI", "AKID", "ATBB", "AQVN"), 16, needs_digit=True, then=re.compile("[A-Za-z0-9]{16}")),
    Form(("sl.",), 60, needs_digit=True),
    Form(("v2.local.", "v4.local."), 40, _DOTTED),
    Form(("xprv9s21ZrQH143K", "nsec1"), 50, _LETTERS),
    *(
        Form(tuple(f"{word}{blank}" for blank in ("  ", " ", "\t", "\n")), fewest, _ENCODED, then=then, is_kept=True)
        for word in _BEARERS
        for fewest, then in ((16, _UNLIKE_A_WORD), (18, None))
    ),
)
_PREFIX = re.compile(
    f"(?<![A-Za-z0-9])(?:{'|'.join(re.escape(prefix) for form in FORMS for prefix in form.prefixes)})", re.ASCII
)
_TELEGRAM = re.compile(r":(?<=[0-9]{6}:)(?=[A-Za-z0-9_-]{20})")
_DISCORD = re.compile(r"\.(?=[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27})")
_NUMBER = re.compile(r"(?<![A-Za-z0-9])(?:bot)?[0-9]{6,12}\Z")
_DISCORD_HEAD = re.compile(r"(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{22,27}\Z")
_NAMES = (
    "sbp sb_secret dckr_pat dckr_oat sgp e2b bkua nfp rnd tfp shpua sntrya pcsk tvly jina CLOJARS phx y0 tgp_v1 "
    "lsv2_pt lsv2_sk ls_ CCIPAT xkeysib FLWSECK key_live key_test duffel_live vercel_blob_rw CFPAT NRAK p8e pscale_tkn "
    "pscale_pw rzp_live rzp_test"
)
_HEADS = frozenset(_NAMES.split())
"""Names that a token follows after a hyphen or an underscore."""
_DRAWN = re.compile(r"[_-](?=[A-Za-z0-9]{14})")
_HEAD = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z][A-Za-z0-9_-]{1,20}\Z")
_DRAWN_HEAD = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z][A-Za-z0-9]{1,11}(?:[_-][A-Za-z0-9]{1,8}){0,2}\Z")
_DRAWN_RUN = re.compile("[A-Za-z0-9]{30,64}")
_HASH = re.compile(
    r"\$(?:2[aby]\$[0-9]{2}\$(?=[A-Za-z0-9./]{53})|(?:[56y]|argon2i?d?|scrypt)\$(?=[A-Za-z0-9./+=,$-]{40}))"
)
_ENCODED_KEY = re.compile("LS0tLS1CRUdJTi(?:BQUklWQVRF|BSU0EgUFJJ|BFQyBQUklW|BPUEVOU1NI|BFTkNSWVBU|BEU0EgUFJJ)")
"""The first line of a private key in base64."""
_LETTER = re.compile("[A-Za-z]")
_DIGIT = re.compile("[0-9]")
_SIGNED = re.compile("eyJ(?<![A-Za-z0-9]eyJ)")
_ADDRESSES = re.compile(
    r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"
    r"|api\.telegram\.org/(?:file/)?bot"
    r"|outlook\.office(?:365)?\.com/webhook/"
    r"|\.webhook\.office\.com/"
    r"|hooks\.zapier\.com/hooks/catch/"
    r"|hook\.[a-z0-9]{2,4}\.make\.com/"
    r"|maker\.ifttt\.com/(?:use|trigger)/",
    re.IGNORECASE | re.ASCII,
)
_SCHEME_END = re.compile("://")
_PASSWORD = re.compile(rf"://{_USER}:([^\s/\"'<>]{{1,200}})@", re.ASCII)
_USER_ALONE = re.compile(r"://(?=[A-Za-z_-]{0,60}[0-9])([A-Za-z0-9_-]{20,200})@", re.ASCII)
_USER_OPTION = re.compile(r"(?<!\S)(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"']{1,100}:(?=\S)")
_SSHPASS = re.compile(r"\bsshpass\s{1,3}-p\s{0,3}[\"']?(?=\S)")
_SQL_PASSWORD = re.compile(r"\bIDENTIFIED (?:WITH [\w']{1,40} )?BY (?:PASSWORD )?'(?=\S)")
_MYSQL = re.compile(r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;&]{0,120}?\s-p[\"']?(?=\S)")
_REDIS = re.compile(r"\bredis-cli\b[^\n|;&]{0,120}?\s-a\s{1,3}[\"']?(?=\S)")
_OPTIONS = (
    (_USER_OPTION, "-u"),
    (_USER_OPTION, "-user"),
    (_SSHPASS, "sshpass"),
    (_MYSQL, "mysql"),
    (_MYSQL, "mariadb"),
    (_REDIS, "redis-cli"),
    (_SQL_PASSWORD, "BY "),
)
"""Each expression, with the text that must occur before it is tried."""
_SIGNS = (":", ".com/", "telegram.org/", "PRIVATE KEY", "Private-Lines", *(hint for _, hint in _OPTIONS))
"""Of these, every address, option and private key contains one."""
_BEGIN = re.compile(r"(?:-----|---- )BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_END = re.compile(r"(?:-----|---- )END [A-Z0-9 ]{0,60} ?-{4,5}")
_PUTTY_BEGIN = re.compile(r"Private-Lines: [0-9]{1,3}(?=[\r\n\\])")
_PUTTY_END = re.compile(r"Private-MAC:")


_FEW = 1024
"""Up to this length, a text is searched for possible tokens first; longer texts nearly always contain some."""
_SHORTEST_TOKEN = 11
_TOKEN_CHARACTERS = re.compile(
    rf"(?<![A-Za-z0-9_.~+/=:$,-])[A-Za-z0-9_.~+/=:$,-]{{{_SHORTEST_TOKEN},{_FEW}}}+", re.ASCII
)
"""Characters of every token with its prefix; `FORMS` and the expressions for single kinds require at least this."""
_SHORTEST_WORD = 18
"""Fewest letters of an all-lowercase token after `Bearer` and similar words."""


def may_have_form(text: str) -> bool:
    """Whether a text may contain a secret that this module finds; quick for short texts, always true for long ones."""
    if len(text) > _FEW:
        return True
    for sign in _SIGNS:
        if sign in text:
            return True
    return _may_have_tokens(text)


def find_tokens(text: str, start: int, end: int) -> Iterator[Span]:
    """The secrets that begin between `start` and `end`; they may extend beyond `end`."""
    if len(text) > _FEW or _may_have_tokens(text):
        yield from _find_tokens(text, start, end)
    yield from _find_addresses(text, start, end)


def _may_have_tokens(text: str) -> bool:
    for piece in text.split():
        if len(piece) < _SHORTEST_TOKEN or (len(piece) < _SHORTEST_WORD and piece.isalpha() and piece.islower()):
            continue
        for run in _TOKEN_CHARACTERS.findall(piece):
            word = run.rstrip(".,:")
            if not (word.isalpha() and word.islower()):
                return True
            if len(run) >= _SHORTEST_WORD and any(bearer in text for bearer in _BEARERS):
                return True
    return False


def _find_tokens(text: str, start: int, end: int) -> Iterator[Span]:
    if len(text) > _FEW or _PREFIX.search(text):
        for form in FORMS:
            for prefix in form.prefixes:
                if text.find(prefix, start, end + len(prefix) - 1) >= 0:
                    yield from _find_form(text, form, prefix, start=start, end=end)
    yield from _find_drawn(text, start, end)
    yield from _find_hashes(text, start, end)
    yield from _find_bots(text, start, end)
    yield from _find_signed(text, start, end)


def _find_form(text: str, form: Form, prefix: str, *, start: int, end: int) -> Iterator[Span]:
    runs = CharacterRuns(text, form.characters)
    limit = end + len(prefix) - 1
    place = start - 1
    while (place := text.find(prefix, place + 1, limit)) >= 0:
        rest = place + len(prefix)
        if _is_within(text, place) or (form.then is not None and not form.then.match(text, rest)):
            continue
        to = runs.end(rest)
        if to - rest < form.fewest:
            continue
        if form.needs_digit and not _DIGIT.search(text, place, min(to, rest + 64)):
            continue
        yield rest if form.is_kept else place, to


def _find_drawn(text: str, start: int, end: int) -> Iterator[Span]:
    """Tokens after a known name, and clearly random text after any short name."""
    words = CharacterRuns(text, _WORD)
    for found in _DRAWN.finditer(text, start, end + LOOKAHEAD):
        at = found.start()
        head = _HEAD.search(text, max(0, at - 24), at)
        if head is None or head[0] not in _HEADS:
            head = _DRAWN_HEAD.search(text, max(0, at - 32), at) if _is_drawn(text, found.end()) else None
        if head is not None and start <= head.start() < end and not _is_within(text, head.start()):
            yield head.start(), words.end(found.end())


def _is_drawn(text: str, at: int) -> bool:
    """Whether mixed lower-case letters, capitals and digits follow; ids are shorter or of one case."""
    run = _DRAWN_RUN.match(text, at)
    return run is not None and all(sum(map(kind, run[0])) >= 3 for kind in (str.isdigit, str.isupper, str.islower))


def _find_hashes(text: str, start: int, end: int) -> Iterator[Span]:
    """Hashes of passwords, and private keys in base64."""
    hashed, encoded = CharacterRuns(text, "[A-Za-z0-9./+=,$-]"), CharacterRuns(text, _ENCODED)
    for pattern, runs in ((_HASH, hashed), (_ENCODED_KEY, encoded)):
        for found in pattern.finditer(text, start, end + LOOKAHEAD):
            if found.start() < end and not _is_within(text, found.start()):
                yield found.start(), runs.end(found.end())


def _find_bots(text: str, start: int, end: int) -> Iterator[Span]:
    """Bot tokens, which begin with the bot's number."""
    words, dotted = CharacterRuns(text, _WORD), CharacterRuns(text, _DOTTED)
    for found in _TELEGRAM.finditer(text, start, end + LOOKAHEAD):
        number = _NUMBER.search(text, max(0, found.start() - 16), found.start())
        if number is not None and start <= number.start() < end and not _is_within(text, number.start()):
            to = words.end(found.end())
            if _LETTER.search(text, found.end(), min(to, found.end() + 64)):
                yield number.start(), to
    for found in _DISCORD.finditer(text, start, end + LOOKAHEAD):
        head = _DISCORD_HEAD.search(text, max(0, found.start() - 29), found.start())
        if head is not None and start <= head.start() < end and not _is_within(text, head.start()):
            yield head.start(), dotted.end(found.start())


def _is_within(text: str, place: int) -> bool:
    """Whether this place continues a word or a mask and was judged with it."""
    before = text[place - 1 : place]
    return (before.isascii() and before.isalnum()) or (before == "]" and text.endswith(MASK, 0, place))


def find_private_keys(text: str, start: int, end: int) -> Iterator[Span]:
    """The private keys that begin between `start` and `end`, as far as they are present."""
    for begin, close in ((_BEGIN, _END), (_PUTTY_BEGIN, _PUTTY_END)):
        ends = Occurrences(text, close)
        for found in begin.finditer(text, start, end + LOOKAHEAD):
            if found.start() >= end:
                break
            limit = min(found.start() + LONGEST_KEY, len(text))
            closed = ends.next(found.end(), limit)
            yield found.start(), limit if closed is None else closed[1]


def _find_signed(text: str, start: int, end: int) -> Iterator[Span]:
    """JSON Web Tokens: three parts separated by dots."""
    runs = CharacterRuns(text, _DOTTED)
    for found in _SIGNED.finditer(text, start, end + LOOKAHEAD):
        if found.start() >= end:
            break
        to = runs.end(found.start())
        dot = text.find(".", found.start() + 10, to)
        if dot >= 0 and text.find(".", dot + 1, to) >= 0 and to - dot > 15 and not _is_within(text, found.start()):
            yield found.start(), to


def _find_addresses(text: str, start: int, end: int) -> Iterator[Span]:
    """Parts of an address that give access: a webhook's path, a password before the host."""
    masks, runs = Masks(text), CharacterRuns(text, _ADDRESS)
    if text.find(".com/", start, end + LOOKAHEAD) >= 0 or text.find("telegram.org/", start, end + LOOKAHEAD) >= 0:
        for found in _ADDRESSES.finditer(text, start, end + LOOKAHEAD):
            span = found.end(), runs.end(found.end())
            if found.start() < end and span[0] < span[1] and not masks.are_in(span):
                yield span
    for pattern, hint in _OPTIONS:
        if text.find(hint, start, end + LOOKAHEAD) < 0:
            continue
        for found in pattern.finditer(text, start, end + LOOKAHEAD):
            span = found.end(), runs.end(found.end())
            if found.start() < end and span[0] < span[1] and not masks.are_in(span):
                yield span
    for found in _SCHEME_END.finditer(text, start, end + LOOKAHEAD):
        password = _PASSWORD.match(text, found.start()) or _USER_ALONE.match(text, found.start())
        if found.start() < end and password is not None and not masks.are_in(password.span(1)):
            yield password.span(1)


assert LONGEST_VALUE < LONGEST_KEY
