"""Operations on skills: what lies in the gateway's home, and what an owner decided. Contract: foreign_agents 5."""

from typing import Any

from antiphon.domain.tokens import TokenScope
from antiphon.engine.skills.skills import KnownSkill
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import skills as wire
from antiphon.wire.encoding import milliseconds


class NamedSkill(Params, frozen=True, kw_only=True):
    name: str


class TrustSkill(Params, frozen=True, kw_only=True):
    name: str
    sha256: str
    """As it was shown: what is trusted is the skill that was seen, and no other."""
    untrusted: bool = False
    """Offers it without trusting it: each context that shows it is then untrusted."""


@operation("skills.list", "GET /skills", scope=TokenScope.ADMIN)
async def list_skills(request: OperationRequest, params: NoParams) -> wire.SkillList:
    """Lists the skills of the gateway's home, and those that were reviewed or are named by an agent."""
    found = await request.services.skills.list(request.principal)
    return wire.SkillList(count=len(found), skills=[wire.SkillShape(**_listed(each)) for each in found])


@operation("skills.show", "GET /skills/{name}", scope=TokenScope.ADMIN, target=TargetKind.SKILL)
async def show_skill(request: OperationRequest, params: NamedSkill) -> wire.ShownSkillShape:
    """Shows a skill with its files and its instructions."""
    return _shown(await request.services.skills.show(request.principal, params.name))


@operation("skills.trust", "POST /skills/{name}/trust", scope=TokenScope.ADMIN, target=TargetKind.SKILL)
async def trust_skill(request: OperationRequest, params: TrustSkill) -> wire.ShownSkillShape:
    """Trusts a skill as it was seen: agents that name it may use it from now on, until it changes.

    A skill is added on the gateway's machine, by `antiphon skills add`.
    """
    skills = request.services.skills
    return _shown(await skills.trust(request.principal, params.name, params.sha256, is_trusted=not params.untrusted))


@operation("skills.remove", "DELETE /skills/{name}", scope=TokenScope.ADMIN, target=TargetKind.SKILL)
async def remove_skill(request: OperationRequest, params: NamedSkill) -> wire.RemovedSkill:
    """Removes a skill from the gateway's home, and withdraws its review, so that no other home offers it either."""
    await request.services.skills.remove(request.principal, params.name)
    return wire.RemovedSkill(name=params.name)


def _listed(known: KnownSkill) -> dict[str, Any]:
    skill, review, problem = known.stored.skill, known.review, known.stored.problem
    return {
        "name": known.stored.name,
        "state": known.state,
        "agents": known.agents,
        "description": None if skill is None else skill.words.description,
        "sha256": None if skill is None else skill.sha256,
        "file_count": 0 if skill is None else len(skill.files),
        "bytes": 0 if skill is None else sum(file.size for file in skill.files),
        "problem": None if problem is None else problem.message,
        "reviewed_sha256": None if review is None else review.sha256,
        "reviewed_by": None if review is None else str(review.reviewed_by),
        "reviewed_at": None if review is None else milliseconds(review.reviewed_at),
    }


def _shown(known: KnownSkill) -> wire.ShownSkillShape:
    skill = known.stored.skill
    if skill is None:
        return wire.ShownSkillShape(**_listed(known))
    words = skill.words
    return wire.ShownSkillShape(
        **_listed(known),
        license=words.license,
        compatibility=words.compatibility,
        metadata=words.metadata,
        allowed_tools=words.allowed_tools,
        files=[
            wire.SkillFileShape(path=file.path, size=file.size, executable=file.is_executable, sha256=file.sha256)
            for file in skill.files
        ],
        body=words.body,
    )
