"""Bugs of channels that packages offer."""

from tests.planted.bug import Bug

KINDS = "channels/test_kinds.py::"
SUITE = "channels/together/test_suite.py::test_a_channel_does_what_channels_do"

COMMANDS = "cli/test_channels.py::"
APPRISE = "channels/apprise/test_apprise.py::"

BUGS = (
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
        "            finally:\n                del self._served[lease.name]",
        "            else:\n                del self._served[lease.name]",
        "engine/chats/test_holding_accounts.py::test_an_account_is_free_at_once_when_its_serving_ends[sqlite-fails]",
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
