"""Skills of agents: what lies in the home, and what an owner decided about it. Contract: foreign_agents 5."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.audit import AuditKind
from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.ids import AgentId
from antiphon.domain.skill import ReviewedSkill, Skill, SkillReview, SkillState, is_skill_name, state_of
from antiphon.engine.access.reach import refuse_act
from antiphon.engine.rules import Rules
from antiphon.engine.skills.folders import SkillFolders, StoredSkill
from antiphon.policy.acts import Act
from antiphon.store import audit
from antiphon.store import skill_reviews as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing


class KnownSkill(Struct, frozen=True, kw_only=True):
    """A skill that lies in this home, was reviewed, or is named by an agent."""

    stored: StoredSkill
    review: SkillReview | None
    agents: tuple[AgentId, ...]
    """The agents that name it."""

    @property
    def state(self) -> SkillState:
        return state_of(self.stored.skill, self.review, is_broken=self.stored.problem is not None)


class OfferedSkill(Struct, frozen=True, kw_only=True):
    """A skill that an agent may use."""

    skill: Skill
    is_trusted: bool


class Skills:
    """Those with a principal raise `Denied` for anyone but owners. The folders are those of this process's home."""

    def __init__(self, database: Database, folders: SkillFolders, rules: Rules) -> None:
        self._database = database
        self._folders = folders
        self._rules = rules

    async def list(self, principal: Principal) -> Sequence[KnownSkill]:
        """All, by name."""
        reviews = {each.name: each for each in await self._database.read(_list, principal)}
        named = _agents_by_skill(self._rules)
        names = sorted({*await to_thread.run_sync(self._folders.names), *reviews, *named})
        return [await self._known(name, reviews, named) for name in names]

    async def show(self, principal: Principal, name: str) -> KnownSkill:
        """Raises `NotFound` for one that is nowhere."""
        reviews = {each.name: each for each in await self._database.read(_list, principal)}
        known = await self._known(name, reviews, _agents_by_skill(self._rules))
        if known.state is SkillState.MISSING and known.review is None and not known.agents:
            raise _not_found(name)
        return known

    async def trust(self, principal: Principal, name: str, sha256: str, *, is_trusted: bool) -> KnownSkill:
        """Offers the skill as it was seen, in the place of what was reviewed before.

        Raises `NotFound` for one that this home lacks, and `Conflict` (`skill_changed`) for one
        that is not as it was seen.
        """
        seen = await self.show(principal, name)
        if seen.stored.problem is not None:
            raise seen.stored.problem
        if seen.stored.skill is None:
            raise _not_found(name)
        if seen.stored.skill.sha256 != sha256:
            raise Conflict(
                f"Skill is not as it was shown: {name!r}. Its folder has changed. Look at it again.",
                code="skill_changed",
            )
        await self._database.run(_put, principal, ReviewedSkill(name=name, sha256=sha256, is_trusted=is_trusted))
        return await self.show(principal, name)

    async def remove(self, principal: Principal, name: str) -> None:
        """Withdraws the review and removes the folder. Raises `NotFound`."""
        if not is_skill_name(name):
            await self._database.read(_list, principal)
            raise _not_found(name)
        was_reviewed = await self._database.run(_delete, principal, name)
        if not await to_thread.run_sync(self._folders.remove, name) and not was_reviewed:
            raise _not_found(name)

    async def of_agent(self, agent_id: AgentId) -> Sequence[OfferedSkill]:
        """What is offered to the agent now, in the order of its settings. Reads nothing if it names no skill."""
        agent = self._rules.agents.get(agent_id)
        if agent is None or not agent.skills:
            return []
        reviews = {each.name: each for each in await self._database.read(rows.list_in_force)}
        known = [await self._known(name, reviews, {}) for name in agent.skills if name in reviews]
        return [
            OfferedSkill(skill=each.stored.skill, is_trusted=each.state is SkillState.TRUSTED)
            for each in known
            if each.stored.skill is not None and each.state.is_offered
        ]

    async def find(self, agent_id: AgentId, name: str) -> OfferedSkill:
        """The skill as it is offered to the agent now.

        Raises `NotFound` (`skill_not_found`), and `Conflict` (`skill_changed`) for one that was reviewed before.
        """
        offered = await self.of_agent(agent_id)
        found = next((each for each in offered if each.skill.words.name == name), None)
        if found is not None:
            return found
        agent = self._rules.agents.get(agent_id)
        if agent is not None and name in agent.skills:
            reviews = {each.name: each for each in await self._database.read(rows.list_in_force)}
            state = (await self._known(name, reviews, {})).state
            if state is SkillState.CHANGED or (state is SkillState.BROKEN and name in reviews):
                raise Conflict(
                    f"Skill has changed since an owner reviewed it: {name!r}. Do without it, or tell your user that an "
                    f"owner can look at it again: `antiphon skills trust {name}`.",
                    code="skill_changed",
                )
        names = ", ".join(each.skill.words.name for each in offered) or "none"
        raise NotFound(f"Skill not found: {name[:80]!r}. This agent has: {names}.", code="skill_not_found")

    async def read_file(self, skill: Skill, path: str) -> bytes:
        """Raises `NotFound` (`skill_file_not_found`), `Conflict` (`skill_changed`)."""
        return await to_thread.run_sync(self._folders.read_file, skill, path)

    async def path_of(self, skill: Skill) -> Path:
        """The folder, which is as it was reviewed. Raises `Conflict` (`skill_changed`)."""
        return await to_thread.run_sync(self._folders.path_of, skill)

    async def _known(
        self, name: str, reviews: Mapping[str, SkillReview], named: Mapping[str, tuple[AgentId, ...]]
    ) -> KnownSkill:
        stored = await to_thread.run_sync(self._folders.find, name)
        return KnownSkill(stored=stored, review=reviews.get(name), agents=named.get(name, ()))


def _agents_by_skill(rules: Rules) -> Mapping[str, tuple[AgentId, ...]]:
    found: dict[str, tuple[AgentId, ...]] = {}
    for agent in rules.agents.values():
        for name in agent.skills:
            found[name] = (*found.get(name, ()), agent.id)
    return found


async def _list(query: Query, principal: Principal) -> list[SkillReview]:
    refuse_act(await find_standing(query, principal), Act.REVIEW_SKILLS)
    return await rows.list_in_force(query)


async def _put(tx: Transaction, principal: Principal, seen: ReviewedSkill) -> None:
    refuse_act(await find_standing(tx, principal), Act.REVIEW_SKILLS)
    await rows.put(tx, seen, principal)
    content = {"by": str(principal), "skill": seen.name, "sha256": seen.sha256}
    await audit.append(tx, AuditKind.TRUSTED, {**content, "trusted": seen.is_trusted})


async def _delete(tx: Transaction, principal: Principal, name: str) -> bool:
    refuse_act(await find_standing(tx, principal), Act.REVIEW_SKILLS)
    was_there = await rows.delete(tx, name)
    if was_there:
        await audit.append(tx, AuditKind.TRUSTED, {"by": str(principal), "skill": name, "trusted": False})
    return was_there


def _not_found(name: str) -> NotFound:
    return NotFound(f"Skill not found: {name[:80]!r}. `antiphon skills list` shows them.")
