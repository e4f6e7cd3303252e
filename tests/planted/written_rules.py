"""Bugs in rules that people write, in checks, and in what is said of simulated calls."""

from tests.planted.bug import Bug

DECIDING = "policy/test_written_rules.py"
HOOKS = "flow/test_written_hooks.py"
RELOADS = "engine/work/test_rule_reloads.py"
SIMULATING = "flow/test_simulating.py"

BUGS = (
    Bug(
        "a rule that asks goes before one that blocks",
        "policy/written/fields.py",
        "    APPROVE = 2\n    BLOCK = 3\n",
        "    APPROVE = 3\n    BLOCK = 2\n",
        f"{DECIDING}::test_the_strictest_action_wins_whatever_the_order",
    ),
    Bug(
        "a field that is missing differs from any value",
        "policy/written/rule_set.py",
        "    return lambda facts, _: (value := facts.get(field)) is not None and holds(value)\n",
        "    return lambda facts, _: holds(facts.get(field))\n",
        f"{DECIDING}::test_operators",
    ),
    Bug(
        "of rules that are looked up by a list of values only the first value counts",
        "policy/written/rule_set.py",
        'else set(cast("tuple[str, ...]", key.value)):',
        'else set(cast("tuple[str, ...]", key.value)[:1]):',
        f"{DECIDING}::test_operators",
    ),
    Bug(
        "the name of an argument within an object stays in it",
        "policy/written/redacting.py",
        "{redact_by(name, redactors).text: redact_value(each, redactors)",
        "{name: redact_value(each, redactors)",
        f"{DECIDING}::test_nested_arguments_are_redacted_where_the_condition_looks",
    ),
    Bug(
        "what is taken out of arguments runs nevertheless",
        "agents/approving.py",
        "    return replace(call, part=replace(call.part, arguments=json.dumps(after, ensure_ascii=False)))\n",
        "    return call\n",
        f"{HOOKS}::test_what_is_taken_out_is_neither_sent_nor_asked_about_and_the_log_has_what_ran",
    ),
    Bug(
        "what is taken out of the arguments of a call from outside runs nevertheless",
        "agents/calls.py",
        "        arguments = without_redacted(said, tool, arguments)\n",
        "",
        f"{HOOKS}::test_a_call_from_outside_meets_the_same_rules",
    ),
    Bug(
        "a result that a rule holds back is told",
        "agents/call_rules.py",
        "    if said.action is Action.BLOCK:\n        return replace(output",
        "    if said.action is Action.APPROVE:\n        return replace(output",
        f"{HOOKS}::test_a_result_is_held_back_or_told_without_secrets",
    ),
    Bug(
        "later prompts hold what was taken out of the first",
        "domain/transcript.py",
        "    return entry if found is None else replace(entry, message=as_decided(entry.message, found))\n",
        "    return entry\n",
        f"{HOOKS}::test_what_a_prompt_must_not_hold_stays_out_of_every_prompt",
    ),
    Bug(
        "later prompts hold results that were kept out of the first",
        "domain/transcript.py",
        "self._results[name] = as_decided(self._results[name], each)",
        "self._results[name] = self._results[name]",
        f"{HOOKS}::test_what_a_prompt_must_not_hold_stays_out_of_every_prompt",
    ),
    Bug(
        "a check that fails lets through what it was asked about",
        "engine/policy_checks.py",
        "    return block(_FAILED)\n",
        "    return None\n",
        f"{HOOKS}::test_a_check_decides_and_one_that_fails_blocks",
    ),
    Bug(
        "a check may ask where nobody can be asked",
        "engine/policy_checks.py",
        "    if action is not Action.APPROVE or check.hook not in ASKING:\n        action = Action.BLOCK\n",
        "    if action is Action.REDACT:\n        action = Action.BLOCK\n",
        f"{HOOKS}::test_a_check_that_asks_where_nobody_can_be_asked_blocks",
    ),
    Bug(
        "a text is claimed without asking rules",
        "engine/deliveries/deliveries.py",
        "    said = await decide_claimed(tx, claimed, command.rules, tx.now_ms)\n",
        "    said = RuleDecision()\n",
        f"{HOOKS}::test_a_reply_is_held_back_and_the_chat_hears_why",
    ),
    Bug(
        "a draft is shown before anything has looked at it",
        "engine/deliveries/output_rules.py",
        "    return rules.written.asks(Hook.PRE_OUTPUT)\n",
        "    return False\n",
        "engine/deliveries/test_live_judged.py::test_nothing_is_shown_while_rules_look_at_texts",
    ),
    Bug(
        "a set that cannot be read takes the old one out of force",
        "engine/work/rule_reloads.py",
        "                await self._tell(invalid.message)\n",
        "                await self._tell(invalid.message)\n                self._written.now = RuleSet()\n",
        f"{RELOADS}::test_a_set_that_cannot_be_read_leaves_the_old_one_in_force",
    ),
    Bug(
        "owners hear of a wrong set again and again",
        "engine/work/rule_reloads.py",
        "        if problem == self._problem:\n            return\n",
        "",
        f"{RELOADS}::test_every_owner_is_told_once_of_each_wrong_set_and_nobody_else",
    ),
    Bug(
        "settings that are gone fail without a word",
        "config/sources.py",
        "        except OSError as error:\n            said =",
        "        except ZeroDivisionError as error:\n            said =",
        f"{RELOADS}::test_settings_that_are_gone_leave_the_rules_in_force",
    ),
    Bug(
        "a simulated refusal names rules that the refusal does not",
        "agents/simulating.py",
        '            rules=tuple(map(str, told.get("rules") or ())),\n',
        "            rules=judged.decided.rules,\n",
        f"{SIMULATING}::test_what_is_foreseen_from_outside_is_what_everything_says_one_by_one",
    ),
    Bug(
        "a simulated call names the rules that take something out",
        "agents/simulating.py",
        "reason=_WITHOUT, taint=taint, resulting=resulting)",
        "reason=_WITHOUT, taint=taint, resulting=resulting, rules=judged.decided.redacting)",
        f"{SIMULATING}::test_it_tells_a_rule_only_where_the_refusal_would",
    ),
    Bug(
        "a call is simulated without asking whether somebody would be asked",
        "agents/simulating.py",
        "        asks = None if judged.asked is None else judged.asked.reason\n",
        "        asks = None\n",
        f"{SIMULATING}::test_a_call_of_a_run_becomes_what_was_simulated_before",
    ),
    Bug(
        "calls are simulated without a limit",
        "tools/simulate_tool_call.py",
        "        buckets.take_at(str(caller.session), RATE)\n",
        "",
        f"{SIMULATING}::test_the_61st_of_a_minute_is_refused_for_that_session_alone",
    ),
    Bug(
        "rules for calls that carry a secret are not asked",
        "mcp/client.py",
        "        return bool(self._connection.settings.env or self._connection.settings.headers)\n",
        "        return bool(self._connection.settings.env)\n",
        "mcp/test_ruled_calls.py::test_calls_of_servers_and_calls_with_secrets_have_hooks_of_their_own",
    ),
    Bug(
        "rules for calls of servers are not asked",
        "agents/call_rules.py",
        "        *([mcp] if call.server is not None else ()),\n",
        "",
        "mcp/test_ruled_calls.py::test_calls_of_servers_and_calls_with_secrets_have_hooks_of_their_own",
    ),
    Bug(
        "conditions that rules have in common are told apart by their field alone",
        "policy/written/rule_set.py",
        "first = (rest[0].field, rest[0].op, repr(rest[0].value))",
        'first = (rest[0].field, rest[0].op, "")',
        f"{DECIDING}::test_conditions_that_rules_have_in_common_are_told_apart_by_the_kind_of_value",
    ),
)
