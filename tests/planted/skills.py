"""Bugs in what agents are offered of skills, and in what becomes of it."""

from tests.planted.bug import Bug

USED = "tools/test_skill.py::"
FOLDERS = "engine/skills/test_folders.py::"

BUGS = (
    Bug(
        "a skill is offered though it has changed",
        "domain/skill.py",
        "    if review.sha256 != skill.sha256:\n        return SkillState.CHANGED\n",
        "",
        f"{USED}test_a_skill_that_changed_is_refused_until_it_is_looked_at_again[sqlite]",
    ),
    Bug(
        "a skill stays trusted when who trusted it is no owner any more",
        "store/skill_reviews.py",
        "WHERE q.role = 'owner' AND q.is_suspended = 0",
        "WHERE q.role = 'owner'",
        f"{USED}test_only_owners_decide_about_skills[sqlite]",
    ),
    Bug(
        "the program of a skill runs outside the sandbox",
        "tools/skill.py",
        "            is_sandboxed=True,\n",
        "            is_sandboxed=agent.is_sandboxed(session.key),\n",
        f"{USED}test_a_program_runs_in_the_sandbox_whatever_commands_may[sqlite-host]",
    ),
    Bug(
        "a file is found beside the skill",
        "tools/skill.py",
        "    file = skill.find(path) if _is_near(path) else None\n",
        "    file = skill.find(path.rpartition('../')[2])\n",
        f"{USED}test_what_a_model_may_make_up_is_refused_in_one_sentence[sqlite]",
    ),
    Bug(
        "a skill that nobody trusts leaves its context trusted",
        "tools/skill.py",
        "is_confirmed=not found._distrusted,",
        "is_confirmed=True,",
        f"{USED}test_a_skill_that_is_offered_without_trust_makes_its_contexts_untrusted[sqlite]",
    ),
    Bug(
        "reading a skill counts as running it",
        "tools/skill.py",
        'if arguments.get("run") is None:',
        'if arguments.get("running") is not None:',
        f"{USED}test_reading_asks_nobody_and_running_with_a_network_asks_like_a_command[sqlite]",
    ),
    Bug(
        "a program does not count what lies in the workspace",
        "agents/toolset.py",
        "return tool.schema.name == RUN_COMMAND or (isinstance(tool, RunningPrograms) and tool.runs_program)",
        "return tool.schema.name == RUN_COMMAND",
        f"{USED}test_a_program_reads_the_workspace_and_raises_its_session[sqlite]",
    ),
    Bug(
        "a yes is good for a newer skill",
        "agents/approving.py",
        "beside = [foreign.beside] if foreign.beside else []",
        "beside: list[str] = []",
        f"{USED}test_a_yes_to_a_program_is_for_the_skill_and_the_workspace_as_they_were[sqlite]",
    ),
    Bug(
        "another skill is trusted than the one that was shown",
        "engine/skills/skills.py",
        "if seen.stored.skill.sha256 != sha256:",
        "if not sha256:",
        f"{USED}test_what_is_trusted_is_what_was_shown[sqlite]",
    ),
    Bug(
        "the hash of a skill does not count modes",
        "domain/skill.py",
        "f\"{'x' if file.is_executable else '-'} {file.sha256} {file.path}\"",
        'f"- {file.sha256} {file.path}"',
        f"{FOLDERS}test_whatever_changes_makes_another_hash[a mode]",
    ),
    Bug(
        "a link in a skill is followed",
        "engine/skills/folders.py",
        "_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC",
        "_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC",
        f"{FOLDERS}test_a_hostile_folder_is_refused_and_leaves_nothing[a link out of the folder]",
    ),
    Bug(
        "YAML may repeat what it named before",
        "engine/skills/manifest.py",
        'if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:',
        "if depth < 0:",
        f"{FOLDERS}test_a_hostile_folder_is_refused_and_leaves_nothing[YAML aliases]",
    ),
    Bug(
        "a skill is copied in another state than it was hashed",
        "engine/skills/folders.py",
        "        skill = _skill_of(name, contents)\n        try:\n            self._write(name, contents)\n",
        "        skill = _skill_of(name, contents)\n        try:\n            self._write(name, contents)\n"
        '            os.chmod(self.directory / name / "SKILL.md", 0o700)\n',
        f"{FOLDERS}test_a_folder_is_copied_with_its_programs_and_without_anything_else",
    ),
)
