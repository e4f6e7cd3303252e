"""Mails: what their heads prove and say, and what their parts hold (RFC 5322, MIME, RFC 8601). Pure."""
