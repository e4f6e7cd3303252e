"""What a check of the database reads about channels with people in them."""

CHATS_SCHEMA = 24
"""The migration that made their tables."""
LIST_TROUBLES = (
    "SELECT channel, account, trouble FROM channel_accounts WHERE trouble IS NOT NULL ORDER BY channel, account"
)
COUNT_OWNERS = (
    "SELECT n.channel, count(*) FROM identities n JOIN people q ON q.id = n.person "
    "WHERE q.role = 'owner' AND q.is_suspended = 0 GROUP BY n.channel"
)
COUNT_ASKED = "SELECT channel, count(*) FROM groups_of_channels WHERE state = 'asked' GROUP BY channel"
COUNT_ALLOWED = "SELECT channel, count(*) FROM groups_of_channels WHERE state = 'allowed' GROUP BY channel"
