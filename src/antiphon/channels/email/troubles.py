"""Why a mailbox cannot be read, or nothing be sent by it: one line each, with the setting and the remedy."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import aiosmtplib
import anyio

from antiphon.channels.email.mailbox import BROKEN, NoFolder, WrongPassword
from antiphon.channels.email.section import EmailAccount

LOOK_SECONDS: Final = 10.0
"""How long a look at a server may take."""


async def error_of(act: Callable[[], Awaitable[object]]) -> Exception | None:
    """What one look at a server fails with."""
    try:
        with anyio.fail_after(LOOK_SECONDS):
            await act()
    except (*BROKEN, WrongPassword, NoFolder, aiosmtplib.SMTPException, ValueError) as error:
        return error
    return None


def where_sent(settings: EmailAccount) -> str:
    """The server that sends."""
    return f"{settings.smtp_host or settings.imap_host}:{settings.smtp_port}"


def trouble_text(error: Exception | None, settings: EmailAccount) -> str | None:
    """Why the mailbox is not read; None for an error of another kind."""
    where = f"{settings.imap_host}:{settings.imap_port}"
    match error:
        case WrongPassword():
            return _wrong_password(where, settings)
        case NoFolder():
            return f"{settings.address} has no folder {settings.folder!r}: set `folder` to one that it has."
        case _ if isinstance(error, BROKEN):
            return _trouble_of_connection(error, where, "imap", "993 is the usual `imap_port`, 143 means STARTTLS")
        case _:
            return None


def sending_trouble(error: Exception | None, settings: EmailAccount) -> str | None:
    """Why nothing can be sent; None if it can."""
    where = where_sent(settings)
    match error:
        case None:
            return None
        case aiosmtplib.SMTPAuthenticationError():
            return _wrong_password(where, settings)
        case aiosmtplib.SMTPSenderRefused():
            said = f"{where} does not take mails of {settings.address} ({error.code})"
            return f"{said}: set `address` to one of this mailbox."
        case _:
            usual = "465 is the usual `smtp_port`, any other means STARTTLS"
            return _trouble_of_connection(error, where, "smtp", usual)


def _wrong_password(where: str, settings: EmailAccount) -> str:
    return (
        f"{where} does not take the password of {settings.login[0]}: set `user` and `password` anew. "
        "Many providers want one for programs."
    )


def _trouble_of_connection(error: Exception, where: str, side: str, usual: str) -> str:
    causes = list[BaseException | None]([error])
    while causes[-1] is not None and len(causes) < 9:
        causes.append(causes[-1].__cause__ or causes[-1].__context__)
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
        return f"The certificate of {where} is not valid for that name: correct `{side}_host`, or set `ca_file`."
    if any(isinstance(each, ssl.SSLError) for each in causes) or "TLS" in str(error):
        return f"{where} does not speak TLS as expected: {usual}."
    if any(isinstance(each, FileNotFoundError) for each in causes):
        return "There is no such file: correct `ca_file`."
    if any(isinstance(each, TimeoutError) for each in causes):
        return f"{where} did not answer in time: correct `{side}_host` and `{side}_port`, or open the way to it."
    return (
        f"{where} cannot be reached, or broke the connection: {type(error).__name__}. Correct `{side}_host` and "
        f"`{side}_port`."
    )
