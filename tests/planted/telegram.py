"""Bugs of the channel Telegram."""

from tests.planted.bug import Bug

DIRECTORY = "channels/telegram"

NAMES = "channels/telegram/test_chat_names.py::"

BUGS = (
    Bug(
        "the thread of a deleted sub-agent falls silent",
        "engine/sessions/deletion.py",
        "await enqueue_notice(tx, released.place, said_of_deleted(), name=name)",
        "assert name",
        "channels/telegram/test_threads.py::"
        "test_a_topic_whose_sub_agent_is_deleted_is_told_so_and_goes_to_the_chats_agent[sqlite]",
    ),
    Bug(
        "a lost thread unbinds whichever thread its sub-agent has",
        "engine/access/bindings.py",
        "if binding is None or lost not in (None, binding.name.thread) or not await unbind(tx, binding):",
        "if binding is None or not await unbind(tx, binding):",
        "channels/telegram/test_threads.py::test_a_text_for_another_topic_that_is_lost_unbinds_nothing[sqlite]",
    ),
    Bug(
        "each picture of an album is a message",
        "domain/joining.py",
        "    if inbound.album is not None and inbound.album == last.album:\n        return True\n",
        "",
        "domain/test_joining.py::test_what_belongs_together[two of an album]",
    ),
    Bug(
        "a message to the owner does not use a webhook that is the owner's",
        "engine/deliveries/outgoing.py",
        'if f"{each.channel}:{each.account_id}" in rules.sinks.owners:',
        "if False:",
        "channels/test_webhook.py::"
        "test_a_message_to_the_owner_goes_to_a_webhook_on_which_everybody_is_the_owner[sqlite]",
    ),
    Bug(
        "a chat that several people share is called like the last of them",
        "store/names.py",
        "s.source_kind = 'channel' AND s.kind <> 'main' ",
        "s.source_kind <> '' ",
        NAMES + "test_every_surface_calls_a_chat_what_its_platform_calls_it_now[sqlite]",
    ),
    Bug(
        "whoever follows a list sees a new name only once the chat is written in",
        "store/chat_names.py",
        "        tx.wake(SessionRow(session))\n",
        "        SessionRow(session)\n",
        NAMES + "test_who_follows_the_list_is_told_of_a_new_name[sqlite]",
    ),
    Bug(
        "the log of the HTTP client holds the token",
        f"{DIRECTORY}/client.py",
        "return self._token not in record.getMessage()",
        "return True",
        "channels/telegram/test_channel.py::test_no_log_holds_the_token_or_an_answer",
    ),
    Bug(
        "an update that cannot be read stops the bot",
        "channels/intake.py",
        "        except ValidationError as error:",
        "        except KeyError as error:",
        "channels/telegram/test_chats.py::test_updates_that_mean_nothing_hold_up_nothing[sqlite]",
    ),
)
