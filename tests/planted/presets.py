"""Bugs in the presets: what they write, what they refuse, what they say."""

from tests.planted.bug import Bug

SETUP = "cli/test_setup.py::"
GUIDES = "guides/test_guides.py::"
REFUSALS = f"{SETUP}test_what_cannot_be_used_is_refused_before_anything_is_written"

BUGS = (
    Bug(
        "what a family says in chats is kept to nobody",
        "cli/presets/texts.py",
        """chats = "own"  # what somebody says""",
        """chats = "open"  # what somebody says""",
        f"{SETUP}test_in_a_family_chats_are_their_persons_and_children_are_guests_who_ask_the_owner",
    ),
    Bug(
        "other adults answer requests of children",
        "cli/presets/texts.py",
        "approve = []       #",
        'approve = ["main", "mia"]  #',
        f"{SETUP}test_in_a_family_chats_are_their_persons_and_children_are_guests_who_ask_the_owner",
    ),
    Bug(
        "children may use as much as anybody",
        "cli/presets/texts.py",
        "tokens = 100_000  # of each guest in a day (UTC)\n",
        "",
        f"{SETUP}test_in_a_family_chats_are_their_persons_and_children_are_guests_who_ask_the_owner",
    ),
    Bug(
        "repositories share a compartment",
        "cli/presets/texts.py",
        "compartments = [{_quoted(each.id)}]",
        "compartments = [{_quoted(coding.repositories[0].id)}]",
        f"{SETUP}test_each_repository_has_an_agent_whose_data_flow_to_no_other",
    ),
    Bug(
        "commands with a network may have what repositories hold",
        "cli/presets/texts.py",
        'clearance = {{ level = "PUBLIC" }}  # with a network',
        'clearance = {{ level = "INTERNAL", compartments = [{_quoted(coding.repositories[0].id)}] }}  # with a network',
        f"{SETUP}test_each_repository_has_an_agent_whose_data_flow_to_no_other",
    ),
    Bug(
        "a file that exists is written over",
        "cli/presets/writing.py",
        "return next((each for each in (place, *beside) if os.path.lexists(each)), None)",
        "place.unlink(missing_ok=True)\n    return None",
        f"{SETUP}test_a_file_that_exists_is_never_touched_and_the_lines_are_printed[antiphon.toml]",
    ),
    Bug(
        "the home's other configuration is not looked for",
        "cli/presets/writing.py",
        "(home / JSON5_NAME,) if place == home / TOML_NAME else ()",
        "()",
        f"{SETUP}test_a_file_that_exists_is_never_touched_and_the_lines_are_printed[antiphon.json5]",
    ),
    Bug(
        "a child is also the owner",
        "cli/presets/answers.py",
        'taken = {_folded(owner_name): "the owner"}',
        "taken = dict[str, str]()",
        f"{REFUSALS}[words3-setup_named_twice]",
    ),
    Bug(
        "a repository that is named twice has two agents",
        "cli/presets/answers.py",
        "        if twin is not None:\n",
        "        if twin is each:\n",
        f"{REFUSALS}[words18-setup_named_twice]",
    ),
    Bug(
        "more compartments are asked for than a home has",
        "cli/presets/answers.py",
        "    if len(folders) > MAX_COMPARTMENTS:\n",
        "    if len(folders) > 2 * MAX_COMPARTMENTS:\n",
        f"{SETUP}test_as_many_repositories_as_there_are_compartments_can_be_kept_apart",
    ),
    Bug(
        "every configuration is near to a preset",
        "cli/presets/plain_words.py",
        "len(by_name[name]) > MOST_DIFFERENCES",
        "len(by_name[name]) > 99",
        f"{SETUP}test_show_says_how_a_configuration_differs_and_when_it_is_like_none",
    ),
    Bug(
        "a child's chat shows a parent's, as the guide tries",
        "policy/chats.py",
        "    return Classification(Level.PUBLIC, person=str(standing.principal))\n",
        "    return PUBLIC\n",
        f"{GUIDES}test_a_family_follows_its_guide",
    ),
    Bug(
        "an agent has the files of another repository, as the guide tries",
        "cli/presets/texts.py",
        "args = {_list([*arguments, str(each.path)])}",
        "args = {_list([*arguments, str(coding.repositories[0].path)])}",
        f"{GUIDES}test_a_programmer_follows_the_guide_for_repositories",
    ),
    Bug(
        "nothing asks after words of others, as the guide tries",
        "policy/approvals.py",
        "    if not is_untrusted or rules.untrusted is UntrustedRule.ALLOW:\n",
        "    if rules.untrusted is not UntrustedRule.BLOCK:\n",
        f"{GUIDES}test_a_person_follows_the_guide_for_one",
    ),
)
