"""What owners trust of what sessions have read: stored with a decision, listed and revoked. Contract: flow 10."""

from collections.abc import Collection, Mapping

from antiphon.domain.actor import Principal
from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.audit import AuditKind
from antiphon.domain.errors import Invalid, NotFound
from antiphon.domain.ids import SessionRow
from antiphon.domain.trusted_content import TrustedContent
from antiphon.engine.access.reach import refuse_act
from antiphon.policy.acts import Act
from antiphon.policy.standing import Standing
from antiphon.store import audit
from antiphon.store import trusted_content as rows
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing


class TrustedContents:
    """What owners trust, as far as its first words flow to who asks. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, principal: Principal, session: SessionRow | None, *, limit: int) -> list[TrustedContent]:
        """Newest first; of all sessions unless one is given."""
        return await self._database.read(_list, principal, session, limit)

    async def revoke(self, principal: Principal, session: SessionRow, sha256: str) -> TrustedContent:
        """The session's runs do not trust it any more, nor calls that are about to begin. Raises `NotFound`."""
        return await self._database.run(_revoke, principal, session, sha256, sessions=(session,))


def refuse_trust(standing: Standing, approval: Approval, hashes: Collection[str]) -> None:
    """Refuses to trust content that the request does not name, or for anyone but owners."""
    if not hashes:
        return
    refuse_act(standing, Act.TRUST)
    known = {each.sha256 for each in approval.sources if each.sha256}
    if unknown := [hash for hash in hashes if hash not in known]:
        raise Invalid(
            f"Request names no such content: {unknown[0][:80]!r}. Trust what stands in its sources.",
            code="unknown_source",
        )


def refuse_untrusting(approval: Approval, verdicts: Mapping[str, Verdict], hashes: Collection[str]) -> None:
    """Refuses to let words go that others may have steered, unless all that was read is trusted with them."""
    releases = any(verdicts[call.id].means.allows for call in approval.calls if call.release is not None)
    if approval.needs_trust and releases and not set(approval.trustable) <= set(hashes):
        raise Invalid(
            "Words of others were read before, so these words go only together with trust in all that was read. "
            f"Trust it too: on the page, or with `antiphon approvals approve {approval.id} --trust`.",
            code="trust_needed",
        )


async def store_trust(tx: Transaction, approval: Approval, hashes: Collection[str], *, by: Principal) -> None:
    for source in approval.sources:
        if source.sha256 in hashes:
            trusted = TrustedContent(
                session=approval.session,
                sha256=source.sha256,
                actor=source.actor,
                tool=source.tool,
                first_words=source.first_words,
                made_of=approval.made_of,
                approval=approval.id,
                trusted_at=moment(tx.now_ms),
                trusted_by=by,
            )
            await rows.insert(tx, trusted)
            await _record(tx, by, approval.session, source.sha256, is_trusted=True)


async def _list(query: Query, principal: Principal, session: SessionRow | None, limit: int) -> list[TrustedContent]:
    standing = await find_standing(query, principal)
    refuse_act(standing, Act.TRUST)
    return await rows.list_page(query, standing.clearance, session, limit=limit)


async def _revoke(tx: Transaction, principal: Principal, session: SessionRow, sha256: str) -> TrustedContent:
    standing = await find_standing(tx, principal)
    refuse_act(standing, Act.TRUST)
    found = await rows.find(tx, session, sha256, standing.clearance)
    if found is None:
        raise NotFound(f"Trusted content not found: {sha256[:80]!r}. `antiphon policy trust list` shows what there is.")
    await rows.delete(tx, session, sha256)
    await _record(tx, principal, session, sha256, is_trusted=False)
    return found


async def _record(tx: Transaction, by: Principal, session: SessionRow, sha256: str, *, is_trusted: bool) -> None:
    content = {"by": str(by), "session": session, "sha256": sha256, "trusted": is_trusted}
    await audit.append(tx, AuditKind.TRUSTED, content)
