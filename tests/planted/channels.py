"""Bugs of channels that packages offer."""

from tests.planted.bug import Bug

KINDS = "channels/test_kinds.py::"
SUITE = "channels/together/test_suite.py::test_a_channel_does_what_channels_do"

COMMANDS = "cli/test_channels.py::"
APPRISE = "channels/apprise/test_apprise.py::"

REACTIONS = "engine/deliveries/test_acknowledgements.py::"

BUGS = (
    Bug(
        "a chat in which nothing may be said gets a reaction",
        "engine/deliveries/acknowledgements.py",
        "not looks_at_output(rules) and await may_signal(query, session, message.place, rules)",
        "not looks_at_output(rules)",
        REACTIONS + "test_a_chat_in_which_nothing_may_be_said_gets_no_reaction[sqlite]",
    ),
    Bug(
        "a reaction is taken away before the answer is sent",
        "engine/deliveries/acknowledgements.py",
        "run.is_over and not await outbox.is_any_of_runs_waiting(query, chain)",
        "run.is_over or not await outbox.is_any_of_runs_waiting(query, chain)",
        REACTIONS + "test_a_message_has_the_reaction_until_its_answer_was_sent[sqlite]",
    ),
    Bug(
        "a reaction stays after a restart",
        "engine/deliveries/acknowledgements.py",
        "self._begin(each, Acknowledgement(shown=ReactionState.PERHAPS))",
        "self._begin(each, Acknowledgement(shown=ReactionState.NO))",
        REACTIONS + "test_a_restart_takes_away_what_the_process_before_gave[sqlite]",
    ),
    Bug(
        "a reaction is taken away again and again",
        "domain/acknowledgement.py",
        "if self.takings < MOST_TAKINGS",
        "if self.takings < MOST_TAKINGS + 1",
        "domain/test_acknowledgement.py::test_it_is_taken_away_even_if_nobody_knows_whether_it_was_given_and_not_again_and_again",
    ),
    Bug(
        "a channel is written although its platform refuses it",
        "cli/homes/channels.py",
        "if each.grade is Grade.BROKEN]:\n            said",
        "if each.grade is None]:\n            said",
        COMMANDS + "test_what_the_platform_refuses_is_not_written",
    ),
    Bug(
        "a secret may stand on the command line",
        "cli/commands/channels.py",
        "        if key in secrets:\n",
        "        if not secrets:\n",
        COMMANDS + "test_what_is_misread_changes_nothing[arguments0-does not belong on a command line]",
    ),
    Bug(
        "a notification holds requests where no clearance is set",
        "engine/notifications.py",
        "    if not _holds_words(notified, rules.sinks):",
        "    if not notified.account:",
        APPRISE + "test_requests_stand_in_it_only_by_a_clearance[sqlite-None-made_of0-False]",
    ),
    Bug(
        "a person is notified as often as something comes up",
        "engine/notifications.py",
        "is_new and not is_early)",
        "is_new)",
        APPRISE + "test_one_notification_a_minute_while_the_number_grows[sqlite]",
    ),
    Bug(
        "what was told once is told again each minute",
        "engine/notifications.py",
        "last is None or at >= last.created_at",
        "last is None or at <= last.created_at",
        APPRISE + "test_one_notification_a_minute_while_the_number_grows[sqlite]",
    ),
    Bug(
        "a channel that cannot be opened keeps the others from running",
        "adapters.py",
        "= each.kind.address\n            except Exception as error:",
        "= each.kind.address\n            except Invalid as error:",
        KINDS + "test_a_package_that_fails_is_broken_and_the_others_run[sqlite-open]",
    ),
    Bug(
        "of two packages with one name, one is taken",
        "channels/kinds.py",
        "    if len(points) > 1:",
        "    if not points:",
        KINDS + "test_two_packages_of_one_name_are_refused_with_both_named",
    ),
    Bug(
        "a channel that failed once, and then has nothing more to serve, stays broken",
        "adapters.py",
        "                await self._mend(name, inside)\n                return\n",
        "                return\n",
        KINDS + "test_a_channel_that_failed_is_served_again_until_it_works[sqlite-returns]",
    ),
    Bug(
        "a channel that fails for the same reason again is logged each time",
        "adapters.py",
        "        if self.broken.get(name) == problem:\n            return\n",
        "",
        KINDS + "test_a_channel_that_failed_is_served_again_until_it_works[sqlite-returns]",
    ),
    Bug(
        "a text that is sent again has another id",
        "channels/webhook/channel.py",
        '        "id": delivery.id,\n',
        '        "id": f"{delivery.id}-{delivery.attempts}",\n',
        SUITE + "[webhook-a_text_whose_answer_is_lost]",
    ),
    Bug(
        "updates are confirmed when they come",
        "channels/telegram/loop.py",
        "            updates = await self._client.fetch_updates(self._offset)\n",
        "            updates = await self._client.fetch_updates(self._offset)\n"
        "            if updates and (seen := position_of(updates[-1])) is not None:\n"
        "                await self._client.fetch_updates(seen + 1, wait_seconds=0)\n",
        SUITE + "[telegram-death]",
    ),
    Bug(
        "an account whose serving failed stays with its process",
        "engine/chats/accounts.py",
        "                await self._let_go(lease)\n\n    async def _obtain",
        "                if has_returned:\n                    await self._let_go(lease)\n\n    async def _obtain",
        "engine/chats/test_holding_accounts.py::test_an_account_is_free_at_once_when_its_serving_ends[sqlite-fails]",
    ),
    Bug(
        "a process renews the lease of one account alone",
        "engine/chats/accounts.py",
        "command = KeepUp(claims=claims,",
        "command = KeepUp(claims=claims[:1],",
        "engine/chats/test_holding_accounts.py::"
        "test_a_process_keeps_all_its_accounts_and_asks_for_all_others_in_one_unit[sqlite]",
    ),
    Bug(
        "each account looks for messages that wait by itself",
        "engine/chats/reception.py",
        "            if self._looked_at is None or time.monotonic() - self._looked_at >= LOOK_SECONDS:\n",
        "            if True:\n",
        "engine/chats/test_held_messages.py::test_one_look_tells_all_accounts_of_a_process_that_nothing_waits[sqlite]",
    ),
    Bug(
        "who followed a join link comes by the next",
        "channels/join_window.py",
        "                await self._settle()  # whoever has followed the link before comes by its window\n",
        "",
        "channels/test_join_window.py::test_who_followed_a_link_before_the_next_was_made_comes_by_its_window",
    ),
    Bug(
        "when somebody was seen is stored with each message",
        "engine/access/who.py",
        " and (who.seen_ms is None or not 0 <= tx.now_ms - who.seen_ms < SEEN_MS):",
        ":",
        "engine/chats/test_seen.py::test_an_account_is_seen_to_the_hour_in_chats_and_groups[sqlite]",
    ),
    Bug(
        "a run that waits goes on after the link of its chat was undone",
        "store/link_undos.py",
        "    await tx.execute(f\"UPDATE runs SET cancel_requested = 1 WHERE status = 'queued' AND {theirs}\", of)\n",
        "",
        "engine/chats/test_three_places.py::"
        "test_at_each_step_all_is_whose_it_should_be_also_what_waits_in_the_queue[sqlite]",
    ),
    Bug(
        "an owner leads a thread elsewhere without a word",
        "engine/chats/routing.py",
        "    if binding is not None:\n        name = ",
        "    if binding is None:\n        name = ",
        "channels/telegram/test_threads.py::test_a_topic_that_an_owner_leads_elsewhere_says_so[sqlite]",
    ),
    Bug(
        "a thread is unbound that leads elsewhere by now",
        "engine/access/bindings.py",
        "    if not await thread_bindings.delete(tx, binding):\n        return False\n",
        "    await thread_bindings.delete(tx, binding)\n",
        "engine/access/test_bindings_at_once.py::"
        "test_a_thread_that_is_unbound_while_it_is_led_elsewhere_leads_there[sqlite]",
    ),
    Bug(
        "a thread stays empty whose sub-agent was refused",
        "engine/children/spawn.py",
        "            await self._database.run(say_not_begun, command.caller, thread)\n",
        "",
        "channels/telegram/test_threads.py::"
        "test_a_topic_that_was_begun_for_a_sub_agent_which_is_refused_then_says_so[sqlite]",
    ),
    Bug(
        "a sub-agent repeats in its thread what another one said in its own",
        "engine/reports/parking.py",
        "with_threads=is_asked)\n    # A run",
        "with_threads=True)\n    # A run",
        "channels/telegram/test_threads.py::"
        "test_a_sub_agents_sub_agent_in_a_topic_answers_there_alone[sqlite-ends later]",
    ),
    Bug(
        "a spawn counts as that of a person who was merged since",
        "engine/children/spawn.py",
        "await hold_outside(tx, command.caller), command.request",
        "command.caller, command.request",
        "engine/calls/test_calls_during_merges.py::"
        "test_a_call_that_begins_before_the_merge_is_committed_is_the_survivors[sqlite-spawn]",
    ),
    Bug(
        "every installed package is imported",
        "config/sections/channels.py",
        "    if others:\n        others &= {*installed_names()}",
        "    others = frozenset(installed_names()) - own_kinds().keys()",
        KINDS + "test_a_package_is_imported_only_if_the_settings_name_its_channel",
    ),
    Bug(
        "a header that proves the sender may come twice",
        "gateway/operations/channels.py",
        ".getlist(name)) > 1:",
        ".getlist(name)) > 2:",
        KINDS + "test_its_address_at_the_gateway_takes_what_proves_itself_and_nothing_else[sqlite]",
    ),
)
