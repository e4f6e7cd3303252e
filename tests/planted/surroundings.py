"""Bugs in what Antiphon makes of its surroundings: files, variables, proxies, the time and the place of a run."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a byte order mark stops the start",
        "config/file.py",
        "data.removeprefix(codecs.BOM_UTF8)",
        "data",
        "test_config_file.py::test_a_byte_order_mark_and_the_line_ends_of_any_editor_are_read[antiphon.toml",
    ),
    Bug(
        "a file in another encoding names no line",
        "config/file.py",
        """error.object.count(b"\\n", 0, error.start) + 1""",
        "1",
        "test_config_file.py::test_a_file_in_another_encoding_is_refused_with_the_place",
    ),
    Bug(
        "a variable with commas is one name",
        "config/sections/variable.py",
        'text.split(",")',
        "[text]",
        "test_settings_from_variables.py::test_a_variable_holds_a_list_with_commas[gateway.allowed_hosts]",
    ),
    Bug(
        "an empty variable is an empty list",
        "config/sections/variable.py",
        "        if not found:",
        "        if False:",
        "test_settings_from_variables.py::test_what_is_no_list_is_refused_in_the_form_that_helps[-tools.approval.require]",
    ),
    Bug(
        "a variable for a part drops the table of another variable",
        "config/sources.py",
        "existing = tree[name] = table_in(existing)",
        "existing = tree[name] = {}",
        "test_settings_from_variables.py::test_a_variable_for_a_part_changes_the_table_of_another_variable",
    ),
    Bug(
        "a secret of a variable keeps its newline",
        "config/sections/section.py",
        '(os.environ.get(variable, "").strip() or None)',
        '(os.environ.get(variable, "") or None)',
        "test_settings_from_variables.py::test_a_secret_loses_the_blanks_at_its_ends_wherever_it_stands",
    ),
    Bug(
        "a secret of the file keeps its newline",
        "config/sections/section.py",
        "return value.strip() if isinstance(value, str) else value",
        "return value",
        "test_settings_from_variables.py::test_a_secret_loses_the_blanks_at_its_ends_wherever_it_stands",
    ),
    Bug(
        "a variable's name in a setting is not told",
        "config/misread.py",
        "    yield from _literal_settings(config)\n",
        "",
        "test_settings_from_variables.py::test_a_setting_that_holds_a_variables_name_is_told",
    ),
    Bug(
        "a zone that names none is not told",
        "config/sections/zones.py",
        "if not given or _zone_of_variable() is not None",
        "if given or _zone_of_variable() is not None",
        "test_settings_from_variables.py::test_a_zone_that_names_none_is_told_with_the_setting",
    ),
    Bug(
        "a tool that is denied to sub-agents is offered",
        "agents/toolset.py",
        "            and not matches_any(name, lacked)\n",
        "",
        "tools/test_session_tools.py::test_sub_agents_have_what_is_allowed_and_not_denied",
    ),
)
