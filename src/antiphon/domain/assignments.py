"""Secrets recognised by the name of their variable or field: `dbPassword: "…"`, `--token …`, `export API_KEY=…`.

A name is split into words at case and punctuation; the last word says what the value is, earlier words qualify it.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from antiphon.domain.spans import LONGEST_VALUE, LOOKAHEAD, MASK, CharacterRuns, Masks, Span

LONGEST_NAME = 64
LONGEST_JUDGED = 100
"""Characters of a value; longer values are never words, amounts or references."""

_HINTS = (
    *("pass", "pwd", "secret", "token", "credential", "key", "authori", "auth", "cookie", "mnemonic", "phrase"),
    *("signature", "sig", "pin", "otp", "cvv", "pw", "psk"),
)
_PLAIN_NAMES = ("kennwort", "mot de passe", "senha", "wachtwoord")
_WIDE_NAMES = ("contraseña", "hasło", "пароль", "密码", "密碼", "口令", "パスワード", "비밀번호")
_FOREIGN_NAMES = (*_PLAIN_NAMES, *_WIDE_NAMES)
_BLOCK_SIZE = 1024
LONGEST_HINT = max(map(len, _HINTS))
_ANCHOR = re.compile(
    r"[ackmopstACKMOPST](?:"
    r"(?<=[pP])(?i:ass(?:word|wd|phrase|code)?|wd?|hrase|in|sk)|(?<=[sS])(?i:ecret|ig(?:nature)?)|(?<=[tT])(?i:oken)"
    r"|(?<=[cC])(?i:redential|ookie|vv)|(?<=[kK])(?i:ey)|(?<=[aA])(?i:uth(?:ori[sz]ation)?)|(?<=[mM])(?i:nemonic)"
    r"|(?<=[oO])(?i:tp)"
    r")"
    r"(?P<rest>[A-Za-z0-9_.-]{0,40}+)"
    r"""(?P<close>(?:&(?:quot|#3[49]);|\\u002[27]|\\{0,7}["'`]?\]?)\*{0,3}(?:[ ]\([\w .,-]{1,24}\))?)"""
    r"(?:"
    r"""(?:,?\s{0,40}\\{0,7}["']?value\\{0,7}["']?)?\s{0,3}(?P<sign>=>|->|\u2192|:=|\+=|===?"""
    r"""|=|\uff1d|%3[ADad]|&\#(?:61|x3[dD]);|\uff1a|:(?!:))(?:\*{1,3}(?=\s))?\s{0,3}"""
    r"|(?P<tag>>)"
    r"|(?P<blank>[ \t]{1,3})"
    r")",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z", re.ASCII)
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WORD_BEFORE = re.compile(r"([A-Za-z]{2,16})[ -]\Z")
_OPEN = re.compile(r"""[bBrRfFuU$]{0,2}(?P<escapes>\\{0,7})(?P<quote>\"\"\"|'''|["'`])""")
_CURLY = {"\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "\u201e": "\u201c"}
_ENTITY = re.compile(r"&(?:quot|#3[49]);|\\u002[27]|%2[27]")
"""Quotes as encoded in pages and addresses."""
_PROSE = re.compile(
    r"(?:\|[ \t]{0,3}`?|(?:is|was|are)(?: now| set to)?:?[ \t]{1,3}|(?:for|of) [\w.@-]{1,32}(?::|=| is)[ \t]{1,3})?"
)
"""Text that may stand between a name and its value in a sentence or a table."""
_FOREIGN = re.compile(
    rf"(?:{'|'.join(_FOREIGN_NAMES)})\s{{0,3}}(?:[:=\uff1a\uff1d]|ist|est|es|is)\s{{0,3}}[\"'`]?(?=\S)", re.IGNORECASE
)
_TECHNICAL = re.compile(
    r"v?[0-9][0-9.,_x-]{0,100}[A-Za-z%]{0,4}|[\w/-]{1,60}\.[a-z]{1,5}"
    r"|(?i:base|sha|md|utf|aes|oauth|argon|pbkdf|hmac|hs|rs|es|ed|http|ipv|tls|ssl|ec|s|py|python|node|java|v|k)[-_]?[0-9].{0,100}",
    re.ASCII | re.DOTALL,
)
"""Versions, sizes, files and the names of algorithms."""
_VARIABLE = re.compile(r"[A-Z]{2,20}(?:_[A-Z]{1,20}){1,6}")
_MOUNT = ("id=", "src=", "source=", "type=", "env=")
_SCHEME = re.compile(r"(?:bearer|basic|token|apikey|bot|negotiate|ntlm)[ \t]{1,3}(?=\S)", re.IGNORECASE)
_MANY = re.compile(r"(?:digest|aws4-hmac-sha256|hawk|oauth)[ \t]{1,3}", re.IGNORECASE)
_TYPED = re.compile(r"[A-Za-z_][\w.\[\]| ]{0,40}=(?!=)\s{0,3}", re.ASCII)
_BLOCK = re.compile(r"[|>][+-]?[ \t]{0,3}\n(?=[ \t])")
_EXPORT = re.compile(r"(?:\A|\n|\b(?:export|set|env|ENV|ARG|-e)[ \t]{1,3}|[ \t])\Z")
_LINE_START = re.compile(r"(?:\A|\n)[ \t]{0,8}(?:(?:export|set|env|ENV|ARG|SET|setx)[ \t]{1,3})?\Z")


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEUTRAL = _listed(
    "value val plain plaintext raw text base b hex old new current prod production dev development test "
    "testing staging live sandbox default env string str"
)
"""Words that may follow the telling word."""
_SECRET_ENDS = (
    *(
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "secret",
        "secrets",
        "apikey",
        "accesskey",
        "passwort",
    ),
    *("secretkey", "privatekey", "authtoken", "accesstoken", "refreshtoken", "sessiontoken", "idtoken", "credential"),
    *("credentials", "mnemonic", "authorization", "authorisation", "signingkey", "encryptionkey", "accountkey"),
)
_PASSES = _listed("bypass compass encompass overpass surpass trespass underpass")
_KEY_SECRETS = _listed(
    "api access secret private signing sign encryption encrypt decryption auth account client master service "
    "shared storage ssh app application subscription admin root deploy deployment hmac jwt webhook crypt aes rsa "
    "license licence openai anthropic google gemini azure aws sendgrid stripe mailgun twilio github gitlab slack "
    "integration write ingest instrumentation functions security consumer developer bearer partner user server"
)
_KEY_HARMLESS = _listed(
    "public primary foreign sort sorting partition cache session idempotency object lock row dict hot short index "
    "unique group search map routing message event translation config registry column field query item parent "
    "source target order ordering range natural composite json react list tree data meta lookup storagekey pub "
    "any each"
)
_TOKEN_HARMLESS = _listed(
    "max min num n count total input output prompt completion context cached per limit stop special pad eos bos "
    "unk sep cls next page continuation sync cancel cancellation first last current previous prev lookahead "
    "budget used new remaining estimated reasoning thinking average avg punctuation"
)
_WORD_VALUES = _listed(
    "sign a an the at is are was be been must should shall may can could will would not no never none null nil true "
    "false yes undefined use used using your my our his her its their it in to of for from and or with without "
    "this that these those see enter entered required optional needed invalid incorrect wrong missing expired "
    "changed reset hidden unset empty unknown available unavailable given set read only string str bytes int "
    "integer number float bool boolean any object array list dict tuple type secretstr text await new lambda "
    "function def return if else yield const let var async typeof as on off by per about after before when how "
    "what where why which who ok okay failed error only both all some each one two three n/a tbd todo unlimited "
    "default match matches ... … ask asks on/off please do does did don't doesn't can't cannot have has had you "
    "include same-origin omit "
    "we i they he she flag flags option options field fields box value values name length limit policy file path"
)
_REFERENCE_HEADS = _listed(
    "self this args arg config settings os process env cls request req ctx context options opts params user "
    "account data payload row response res result kwargs secrets vars var local module form body event message "
    "state props session credentials creds auth client app tokens"
)
_KEYWORDS = _listed("password passwd pwd passphrase secret secrets token tokens key keys credentials auth")
_CODE_WORDS = _listed(
    "access api auth bot client refresh bearer session user db database new old current raw plain hashed"
)
_PLACEHOLDER = re.compile(
    r"<[^<>]{0,80}>|\$[A-Z_][A-Z0-9_]{0,60}|\$\{[^{}]{0,80}\}|\$\([^()]{0,80}\)|\{\{.{0,80}\}\}|\$\{\{.{0,80}\}\}"
    r"|\{[\w.]{0,60}\}|%s|%\w{1,40}%|%\(\w{1,40}\)s|[*•·xX.\-_#]{2,64}|\?|:\w{1,40}|\[[A-Za-z _-]{0,40}\]",
    re.ASCII,
)
_SPACED_PLACEHOLDER = re.compile(r"<[^<>\n]{1,80}>|\$?\{\{[^{}\n]{0,80}\}\}|\$\{[^{}\n]{0,80}\}")
_AMOUNT = re.compile(r"[0-9][0-9,._]{0,11}[kKmM]?")
_DIGITS = re.compile(r"[0-9]{3,8}")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]{0,60}", re.ASCII)
_REFERENCE = re.compile(r"([A-Za-z_][\w]{0,40})(?:(?:\.|\?\.|->|::|\[)[\w\]\"']{1,40}){1,30}[\])}]{0,4}", re.ASCII)
_CALL = re.compile(r"[A-Za-z_][\w.]{1,60}(?:\(|\[)", re.ASCII)
_EDGES = "*_`.,:;!?)]}>"


class Weight(Enum):
    """What a name says about its value."""

    HARMLESS = auto()
    DIGITS = auto()
    """A secret if it is a short number."""
    RANDOM = auto()
    """A secret if it looks random."""
    COOKIES = auto()
    """Names and values, up to the end of the line."""
    SECRET = auto()
    TOKEN = auto()
    """A secret unless it is an amount, because tokens are also counted."""
    PHRASE = auto()
    """A secret of several words, up to the end of the line."""
    MIXED = auto()
    """A secret if it consists of letters and digits."""


class _Name(NamedTuple):
    """A name that may make its value a secret."""

    words: tuple[str, ...]
    weight: Weight


def may_assign(text: str) -> bool:
    """Whether a text may contain the value of a telling name."""
    near = text.lower()
    return any(hint in near for hint in (*_HINTS, *_names_in(near)))


def _names_in(near: str) -> tuple[str, ...]:
    return _PLAIN_NAMES if near.isascii() else _FOREIGN_NAMES


class Assignments:
    """Finds the values in a text; at ascending places, it reads each character a bounded number of times."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._masks = Masks(text)
        self._plain = CharacterRuns(text, r"""[^\s"'`,;]""")
        self._in_query = CharacterRuns(text, r"""[^\s"'`,;&#]""")
        self._whole = CharacterRuns(text, r"[^\s]")
        self._line = CharacterRuns(text, r"[^\n]")

    def find(self, start: int, end: int) -> Iterator[Span]:
        """The values of names whose telling word begins between `start` and `end`; values may extend beyond `end`."""
        for block in range(start, end, _BLOCK_SIZE):
            block_end = min(block + _BLOCK_SIZE, end)
            near = self._text[block : block_end + LONGEST_HINT].lower()
            if any(hint in near for hint in _HINTS):
                yield from self._find(block, block_end)
            if any(name in near for name in _names_in(near)):
                yield from self._find_foreign(block, block_end)

    def _find(self, start: int, end: int) -> Iterator[Span]:
        for found in _ANCHOR.finditer(self._text, start, end + LOOKAHEAD):
            if found.start() >= end:
                break
            for span in self._values(found):
                if span[0] < span[1] and not self._masks.are_in(span):
                    yield span

    def _find_foreign(self, start: int, end: int) -> Iterator[Span]:
        for found in _FOREIGN.finditer(self._text, start, end + LOOKAHEAD):
            if found.start() >= end:
                break
            span = found.end(), self._plain.end(found.end())
            if _is_mixed(self._text[span[0] : min(span[1], span[0] + LONGEST_JUDGED)]) and not self._masks.are_in(span):
                yield span

    def _values(self, found: re.Match[str]) -> Iterator[Span]:
        text = self._text
        name_end = found.end("rest")
        named = _NAME.search(text, max(0, name_end - LONGEST_NAME), name_end)
        assert named is not None
        written, at = named[0], found.end()
        is_flag = written.startswith("-")
        before = text[named.start() - 1] if named.start() else "\n"
        words = name_words(written)
        if len(words) == 1 and words[0] in ("key", "token", "phrase", "code"):
            earlier = _WORD_BEFORE.search(text, max(0, named.start() - 18), named.start())
            words = (*((earlier[1].lower(),) if earlier else ()), *words)
        weight = weigh(words)
        if weight is Weight.HARMLESS and words[-1:] in (("sig",), ("signature",)) and before in "?&":
            weight = Weight.SECRET
        if weight is Weight.HARMLESS:
            return
        name = _Name(words, weight)
        if found["tag"]:
            if before == "<":
                close = text.find("<", at, at + LONGEST_VALUE)
                yield from self._judged(name, at, close if close >= 0 else at, is_quoted=True)
            return
        if found["blank"]:
            if is_flag and not found["close"]:
                yield from self._after_sign(found, name, at, sign="--", before=before)
            elif not is_flag:
                yield from self._in_prose(written, name, at)
            return
        yield from self._after_sign(found, name, at, sign=found["sign"], before=before)

    def _after_sign(self, found: re.Match[str], name: _Name, at: int, *, sign: str, before: str) -> Iterator[Span]:
        text, weight = self._text, name.weight
        if weight in (Weight.COOKIES, Weight.PHRASE) and sign in (":", "=", "--") and not _OPEN.match(text, at):
            end = min(self._line.end(at), len(text))
            if weight is Weight.PHRASE or "=" in text[at : min(end, at + 80)]:
                yield at, end
            return
        if entity := _ENTITY.match(text, at):
            close = text.find(entity[0], entity.end(), entity.end() + LONGEST_VALUE)
            if close >= 0:
                yield from self._judged(name, entity.end(), close, is_quoted=True)
            return
        opened = _OPEN.match(text, at)
        if opened is not None and not (sign == "--" and opened["escapes"] and not opened["quote"]):
            yield from self._judged(name, opened.end(), self._close(opened), is_quoted=True)
            return
        if text[at : at + 1] in _CURLY and at < len(text):
            close = text.find(_CURLY[text[at]], at + 1, at + LONGEST_VALUE)
            yield from self._judged(name, at + 1, close if close >= 0 else self._plain.end(at + 1), is_quoted=True)
            return
        if block := _BLOCK.match(text, at, at + 16):
            yield from self._indented(block.end())
            return
        if sign in ("==", "===") or _SPACED_PLACEHOLDER.match(text, at, at + 100):
            return
        typed = _TYPED.match(text, at, at + 48) if sign == ":" else None
        if typed is not None and (typed_open := _OPEN.match(text, typed.end())):
            yield from self._judged(name, typed_open.end(), self._close(typed_open), is_quoted=True)
        if (
            sign in (":", "=")
            and text.startswith("[", at)
            and weight is Weight.SECRET
            and text[at + 1 : at + 2] in "\"' "
        ):
            close = text.find("]", at, at + LONGEST_VALUE)
            if close > at + 2:
                yield at + 1, close
            return
        if many := _MANY.match(text, at):
            yield many.end(), self._line.end(at)
            return
        if scheme := _SCHEME.match(text, at):
            at = scheme.end()
            opened = _OPEN.match(text, at)
            if opened is not None:
                yield opened.end(), self._close(opened)
                return
        if before in "?&":
            end = self._in_query.end(at)
        elif sign == "=" and found.end("close") + 1 == at and self._is_environment(found):
            end = self._whole.end(at)
        else:
            end = self._plain.end(at)
        is_code = bool(sign != "--" and text[at - 1 : at].isspace())
        yield from self._judged(name, at, end, is_quoted=False, is_code=is_code)

    def _in_prose(self, written: str, name: _Name, at: int) -> Iterator[Span]:
        """The value after a name without a sign: `the password is …`, `| password | … |`, `WITH PASSWORD '…'`."""
        text = self._text
        between = _PROSE.match(text, at)
        assert between is not None
        at = between.end()
        opened = _OPEN.match(text, at)
        if opened is not None and opened["quote"]:
            close = text.find(opened["quote"], opened.end(), opened.end() + LONGEST_JUDGED)
            span = opened.end(), max(close, opened.end())
        else:
            span = at, self._plain.end(at)
        value = text[span[0] : min(span[1], span[0] + LONGEST_JUDGED)]
        is_statement = written.isupper() and opened is not None and opened["quote"] == "'"
        if (is_statement and name.weight is Weight.SECRET and "\n" not in value and value) or _is_told(value, name):
            yield span

    def _is_environment(self, found: re.Match[str]) -> bool:
        start = found.end("rest")
        named = _NAME.search(self._text, max(0, start - LONGEST_NAME), start)
        assert named is not None
        if not named[0].isupper():
            return False
        return _LINE_START.search(self._text, max(0, named.start() - 24), named.start()) is not None

    def _close(self, opened: re.Match[str]) -> int:
        """The end of the open quote, at most `LONGEST_VALUE` further; an escaped quote does not end it."""
        text, quote, depth = self._text, opened["quote"], len(opened["escapes"])
        limit = min(opened.end() + LONGEST_VALUE, len(text))
        place = opened.end()
        while (found := text.find(quote, place, limit)) >= 0:
            escapes = 0
            while escapes < 32 and found - escapes > opened.end() and text[found - escapes - 1] == "\\":
                escapes += 1
            if escapes < depth or (escapes - depth) % (2 * (depth + 1)) == 0:
                return found - min(escapes, depth)
            place = found + 1
        return limit

    def _indented(self, at: int) -> Iterator[Span]:
        """The lines of an indented block, as in YAML."""
        start, place = at, at
        for _ in range(16):
            if self._text[place : place + 1] not in (" ", "\t"):
                break
            place = self._line.end(place)
            if place - start >= LONGEST_VALUE or place >= len(self._text):
                break
            place += 1
        end = min(place, start + LONGEST_VALUE)
        while start < end and self._text[start].isspace():
            start += 1
        while end > start and self._text[end - 1].isspace():
            end -= 1
        yield start, end

    def _judged(self, name: _Name, start: int, end: int, *, is_quoted: bool, is_code: bool = False) -> Iterator[Span]:
        shown = self._text[start : min(end, start + LONGEST_JUDGED + 1)]
        if _is_secret(shown, name, is_quoted=is_quoted, is_code=is_code):
            yield start, end


@lru_cache(maxsize=1024)
def name_words(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, without words that only number or qualify it."""
    words = [word.lower() for word in WORDS.findall(name)]
    while len(words) > 1 and (words[-1] in _NEUTRAL or words[-1].isdigit()):
        words.pop()
    return tuple(words)


@lru_cache(maxsize=1024)
def weigh(words: tuple[str, ...]) -> Weight:
    if not words:
        return Weight.HARMLESS
    *before, last = words
    match last:
        case "key":
            if before and before[-1] in _KEY_SECRETS and before[-1:] != ["storage"]:
                return Weight.SECRET
            if "storage" in before[-1:] or not _KEY_HARMLESS.isdisjoint(before):
                return Weight.RANDOM if "storage" in before else Weight.HARMLESS
            return Weight.RANDOM
        case "token":
            return Weight.HARMLESS if not _TOKEN_HARMLESS.isdisjoint(before) else Weight.TOKEN
        case "tokens" | "auth" | "keys":
            return Weight.RANDOM
        case "pass":
            return Weight.SECRET if before else Weight.TOKEN
        case "phrase":
            return Weight.PHRASE if before and before[-1] in ("seed", "recovery", "pass", "secret") else Weight.HARMLESS
        case "passphrase" | "mnemonic":
            return Weight.PHRASE
        case "cookie" | "cookies":
            return Weight.COOKIES
        case "pin" | "otp" | "cvv":
            return Weight.DIGITS
        case "pw" | "psk":
            return Weight.MIXED
        case "signature":
            return Weight.SECRET if before and before[-1] == "access" else Weight.HARMLESS
        case _:
            is_pass = last.endswith("pass") and last not in _PASSES
            return Weight.SECRET if is_pass or last.endswith(_SECRET_ENDS) else Weight.HARMLESS


def _is_secret(value: str, name: _Name, *, is_quoted: bool, is_code: bool) -> bool:
    """Whether a value with such a name is a secret; `is_code` says that blanks precede it, as in a program."""
    words, weight = name
    if len(value) > LONGEST_JUDGED and weight not in (Weight.DIGITS, Weight.RANDOM):
        return not (is_code and _CALL.match(value))
    bare = value.strip() if is_quoted else value.strip(_EDGES)
    if not bare.strip(_EDGES) or value.startswith(MASK):
        return False
    if _VARIABLE.fullmatch(bare) and weigh(name_words(bare)) is not Weight.HARMLESS:
        return False  # the name of a variable that contains it
    if not is_quoted and words[-1] == "secret" and value.startswith(_MOUNT):
        return False
    if _PLACEHOLDER.fullmatch(value) or (bare.lower() in _WORD_VALUES and (not is_quoted or bare.lower() in _TYPES)):
        return False
    match weight:
        case Weight.DIGITS:
            return _DIGITS.fullmatch(bare) is not None and len(bare) >= (3 if words[-1] == "cvv" else 4)
        case Weight.RANDOM:
            return _is_random(bare)
        case Weight.TOKEN if _AMOUNT.fullmatch(bare):
            return len(bare) >= 6 and bare.isdigit() and bool(bare.strip("0")) and not bare.endswith("000")
        case Weight.COOKIES:
            return "=" in value
        case Weight.MIXED if not is_quoted:
            return _is_mixed(bare)
        case Weight.PHRASE | Weight.SECRET | Weight.TOKEN | Weight.MIXED | Weight.HARMLESS:
            pass
    if is_quoted:
        return bare.lower().replace(" ", "") != "".join(words)
    if weight is Weight.SECRET and bare.isdigit():
        return len(bare) >= 3
    if weight is Weight.TOKEN and words[-1] == "pass" and not (_has_digit(bare) and len(bare) >= 6) and is_code:
        return False
    if len(bare) < 3 or value.startswith(("http://", "https://", "=")):
        return False
    if words[-1] in ("pwd", "oldpwd") and len(words) == 1 and value.startswith(("/", "~", ".", "$(")):
        return False
    return not _is_code(bare, value, is_code=is_code)


def _is_mixed(value: str) -> bool:
    return len(value) >= 6 and _has_digit(value) and any(character.isalpha() for character in value)


def _is_told(value: str, name: _Name) -> bool:
    """Whether a sentence contains a secret; the criteria are stricter than for a value after a sign."""
    words, weight = name
    bare = value.strip(_EDGES)
    if weight is Weight.RANDOM:
        return _is_random(bare)
    if weight not in (Weight.SECRET, Weight.TOKEN, Weight.PHRASE) or words in (("pass",), ("phrase",)):
        return False
    is_many = sum(character.isdigit() for character in bare) >= 2 and len(bare) >= 8
    is_name = bare.startswith(("/", "~", "http", "$", "{", "<", "@", "-")) or not {"(", "=", "["}.isdisjoint(bare)
    return is_many and _is_mixed(bare) and not is_name and not _TECHNICAL.fullmatch(bare) and MASK not in value


_TYPES = _listed(
    "include same-origin omit string str bytes int integer number boolean object array null none true false undefined"
)


def _is_random(value: str) -> bool:
    return (
        len(value) >= 16
        and value.isascii()
        and " " not in value
        and "/" not in value[:4]
        and not value.startswith(("http", "agent:", "{", "(", "["))
        and sum(character.isdigit() for character in value) >= 3
        and any(character.isalpha() for character in value)
        and not _CALL.match(value)
    )


def _has_digit(value: str) -> bool:
    return any(character.isdigit() for character in value)


def _is_code(bare: str, value: str, *, is_code: bool) -> bool:
    """Whether the value means something to a program, and so is not a secret itself."""
    if _CALL.match(value) and (is_code or value.rstrip(",;:").endswith((")", "]", "("))):
        return True
    if reference := _REFERENCE.fullmatch(bare):
        return not _has_digit(bare) and reference[1].lower() in _REFERENCE_HEADS
    if _IDENTIFIER.fullmatch(bare) and not _has_digit(bare):
        found = name_words(bare)
        return found[-1:] in _KEYWORD_TUPLES and all(word in _CODE_WORDS or word in _KEYWORDS for word in found)
    return False


_KEYWORD_TUPLES = frozenset[tuple[str, ...]]((word,) for word in _KEYWORDS)
