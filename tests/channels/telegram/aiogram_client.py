"""A bot made with aiogram, against the fake at the address that it is given. Runs in an environment of its own.

`python aiogram_client.py <token> <http address> poll | webhook`
"""
# pyright: basic, reportMissingImports=false

import asyncio
import sys

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.enums import ChatAction
from aiogram.types import BotCommand, CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

PATH = "/updates"
SECRET = "a-secret-of-the-webhook"
KEYBOARD = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Press", callback_data="pressed")]])

dispatcher = Dispatcher()


@dispatcher.message()
async def answer(message: Message, bot: Bot) -> None:
    """Echoes a text by a draft, a message with a button and its change; answers a file with what is in it."""
    await bot.send_chat_action(message.chat.id, ChatAction.TYPING, message_thread_id=message.message_thread_id)
    if message.document is not None:
        data = await bot.download(message.document)
        assert data is not None
        await message.answer(f"read: {data.read().decode()}")
        return
    if message.chat.type == "private":
        await bot.send_message_draft(chat_id=message.chat.id, draft_id=1, text="ec")
    sent = await message.answer("ec", reply_markup=KEYBOARD)
    await sent.edit_text(f"echo: {message.text}", reply_markup=KEYBOARD)
    if message.text == "delete":
        await sent.delete()


@dispatcher.callback_query()
async def press(query: CallbackQuery) -> None:
    assert isinstance(query.message, Message)
    await query.answer("Thank you")
    await query.message.edit_text(f"{query.from_user.first_name}: {query.data}")


async def main(token: str, address: str, mode: str) -> None:
    session = AiohttpSession(api=TelegramAPIServer.from_base(address))
    async with Bot(token, session=session) as bot:
        me = await bot.get_me()
        assert me.username == "test_bot" and (await bot.get_webhook_info()).url == ""
        for language in (None, "de"):
            await bot.set_my_commands([BotCommand(command="help", description="Help")], language_code=language)
        if mode == "poll":
            await dispatcher.start_polling(bot, handle_as_tasks=False, polling_timeout=5)
            return
        application = web.Application()
        handler = SimpleRequestHandler(dispatcher, bot, handle_in_background=False, secret_token=SECRET)
        handler.register(application, path=PATH)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        await bot.set_webhook(f"http://127.0.0.1:{port}{PATH}", secret_token=SECRET, allowed_updates=["message"])
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
