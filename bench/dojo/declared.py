"""What each function of AgentDojo's suites does to the world, declared by hand as an operator would."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of one function."""

    effects: tuple[str, ...]
    is_trusted: bool = False
    """Whether nobody but the owner and the program has words in its results."""
    routes: tuple[str, ...] = ()
    """The arguments that say where to, or how much."""

    @property
    def only_reads(self) -> bool:
        return self.effects == ("reads",)


_READS: Final = Declared(("reads",))
_KNOWN: Final = Declared(("reads",), is_trusted=True)
_EVENT: Final = ("participants",)

DECLARED: Final[Mapping[str, Declared]] = {
    # Mail
    "send_email": Declared(("writes", "leaves"), routes=("recipients", "cc", "bcc")),
    "delete_email": Declared(("deletes",), is_trusted=True, routes=("email_id",)),
    "get_unread_emails": Declared(("reads", "writes")),
    "get_sent_emails": _READS,
    "get_received_emails": _READS,
    "get_draft_emails": _READS,
    "search_emails": _READS,
    "search_contacts_by_name": _READS,
    "search_contacts_by_email": _READS,
    # Calendar: whoever takes part gets a mail
    "get_current_day": _KNOWN,
    "search_calendar_events": _READS,
    "get_day_calendar_events": _READS,
    "create_calendar_event": Declared(("writes", "leaves"), routes=_EVENT),
    "cancel_calendar_event": Declared(("deletes", "leaves"), is_trusted=True, routes=("event_id",)),
    "reschedule_calendar_event": Declared(("writes", "leaves"), routes=("event_id",)),
    "add_calendar_event_participants": Declared(("writes", "leaves"), routes=("event_id", "participants")),
    # Files
    "append_to_file": Declared(("writes",)),
    "search_files_by_filename": _READS,
    "create_file": Declared(("writes",)),
    "delete_file": Declared(("deletes",), routes=("file_id",)),
    "get_file_by_id": _READS,
    "list_files": _READS,
    "share_file": Declared(("writes", "leaves"), routes=("file_id", "email", "permission")),
    "search_files": _READS,
    # Travel
    "get_user_information": _READS,
    "get_all_hotels_in_city": _READS,
    "get_hotels_prices": _READS,
    "get_rating_reviews_for_hotels": _READS,
    "get_hotels_address": _READS,
    "get_all_restaurants_in_city": _READS,
    "get_cuisine_type_for_restaurants": _READS,
    "get_restaurants_address": _READS,
    "get_rating_reviews_for_restaurants": _READS,
    "get_dietary_restrictions_for_all_restaurants": _READS,
    "get_contact_information_for_restaurants": _READS,
    "get_price_for_restaurants": _READS,
    "check_restaurant_opening_hours": _READS,
    "get_all_car_rental_companies_in_city": _READS,
    "get_car_types_available": _READS,
    "get_rating_reviews_for_car_rental": _READS,
    "get_car_fuel_options": _READS,
    "get_car_rental_address": _READS,
    "get_car_price_per_day": _READS,
    "get_flight_information": _READS,
    "reserve_hotel": Declared(("spends", "leaves"), routes=("hotel", "start_day", "end_day")),
    "reserve_car_rental": Declared(("spends", "leaves"), routes=("company", "start_time", "end_time")),
    "reserve_restaurant": Declared(("spends", "leaves"), routes=("restaurant", "start_time")),
    # Bank
    "get_iban": _KNOWN,
    "get_balance": _KNOWN,
    "send_money": Declared(("spends", "leaves"), is_trusted=True, routes=("recipient", "amount")),
    "schedule_transaction": Declared(("spends", "leaves"), is_trusted=True, routes=("recipient", "amount")),
    "update_scheduled_transaction": Declared(("spends",), is_trusted=True, routes=("id", "recipient", "amount")),
    "get_most_recent_transactions": _READS,
    "get_scheduled_transactions": _READS,
    "read_file": _READS,
    "get_user_info": _READS,
    "update_password": Declared(("configures",), is_trusted=True),
    "update_user_info": Declared(("configures",)),
    # Slack: a page is fetched from a stranger's server, which learns the address that was asked for
    "get_channels": _READS,
    "add_user_to_channel": Declared(("configures",), is_trusted=True, routes=("user", "channel")),
    "read_channel_messages": _READS,
    "read_inbox": _READS,
    "send_direct_message": Declared(("leaves",), is_trusted=True, routes=("recipient",)),
    "send_channel_message": Declared(("leaves",), is_trusted=True, routes=("channel",)),
    "get_users_in_channel": _READS,
    "invite_user_to_slack": Declared(("configures", "leaves"), is_trusted=True, routes=("user", "user_email")),
    "remove_user_from_slack": Declared(("deletes", "configures"), is_trusted=True, routes=("user",)),
    "get_webpage": Declared(("reads", "leaves"), routes=("url",)),
    "post_webpage": Declared(("writes", "leaves"), is_trusted=True, routes=("url",)),
}
"""Of each function, by name. Results hold others' words unless they only repeat arguments, or are the bank's or the
calendar's own figures."""
