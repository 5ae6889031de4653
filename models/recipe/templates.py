"""Sentences of daily life made from templates: greetings, questions, numbers, dates, times, prices and names."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_LISTS = {
    "month": "January February March April May June July August September October November December".split(),
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "name": (
        "John Mary Peter Sarah David Anna Michael Laura James Emma Robert Julia Thomas Alice Daniel Sophie Mark Helen "
        "George Kate Paul Lucy Henry Rachel Frank Susan Brian Karen Kevin Linda Steve Nancy Eric Maria Jack Lisa"
    ).split(),
    "city": (
        "London,Paris,Berlin,Boston,Chicago,New York,Tokyo,Rome,Madrid,Seattle,Dallas,Denver,Dublin,Vienna,Toronto,"
        "Sydney,San Francisco,Los Angeles,Washington,Amsterdam,Moscow,Lisbon,Athens,Houston,Miami,Atlanta,Montreal"
    ).split(","),
    "thing": (
        "the report,the meeting,your order,the package,the new version,the flight,my appointment,the delivery,"
        "the train,"
        "the project,the music,the kitchen light,the front door,the alarm,the email,your message,the recording,"
        "the file,"
        "the server,the weather forecast,the book,the phone,the car,the dinner,the coffee,the movie,the concert,"
        "the game,"
        "the window,the letter,the computer,the garden,the bus,the answer,our table,the bill,the ticket,the key,"
        "the map,"
        "the photo,the camera,the lesson,the recipe,the washing machine,the bicycle,the newspaper,your account,the list"
    ).split(","),
    "state": (
        "ready,late,finished,almost done,cancelled,on the way,available now,not working,very good,a little slow,open,"
        "quite expensive,closed,broken,full,empty,better than before,too loud,really interesting,easy to use,"
        "right here,"
        "scheduled for tomorrow,on the table,in the next room,out of order,still missing,hard to find,much cheaper now,"
        "waiting for you,gone,lost,up to date,old,brand new,too small,too big,clean,dirty,heavy,wrong,free of charge"
    ).split(","),
    "verb": (
        "open,close,check,send,read,write,find,play,stop,start,save,delete,copy,move,change,update,remember,explain,"
        "describe,finish,repeat,cancel,confirm,review,print,bring,fix,clean,share,show me,look at,pick up,turn off,"
        "wait for,ask about,talk about,think about,pay for,order,sell,buy,borrow,return,hide,keep,forget"
    ).split(","),
    "weather": "sunny cloudy rainy windy cold warm hot foggy snowy stormy clear dry wet mild freezing humid".split(),
    "hello": (
        "Hello!|Hi there.|Good morning.|Good afternoon.|Good evening.|Welcome back.|Thank you.|Thanks a lot.|Sure.|"
        "Okay.|"
        "Of course.|Yes.|No.|Sorry.|Please wait.|All right.|Well,|Great!|Right.|Excuse me.|Hey,|Maybe.|Certainly.|"
        "Oh no!|"
        "No problem.|You are welcome.|Good night.|Listen.|Wait a moment.|I see.|Not yet.|Not at all."
    ).split("|"),
    "phrase": (
        "how can I help you today?|what can I do for you?|how are you doing?|nice to meet you.|see you tomorrow.|"
        "I did not understand that.|could you please say that again?|let me check that for you.|what happened?|"
        "this is a test of the speech system.|I am a small voice model running on a computer.|have a wonderful day.|"
        "please try again later.|I will be back in a moment.|that is a great question.|I am happy to help.|"
        "what would you like to know?|here is what I found.|it is time to go home.|the answer is on the screen.|"
        "do you want me to continue?|I can speak many different sentences.|everything is working as expected.|"
        "please speak after the tone.|you have a new message.|your password has been changed.|let us begin.|"
        "thank you for your patience.|I am sorry to hear that.|can you tell me more about it?|who is there?|"
        "I think we should talk about this.|where are you going?|why did you do that?|I have no idea.|"
        "it does not matter.|"
        "we are almost there.|that sounds good to me.|I would like a cup of tea.|could you help me with this?|"
        "they are waiting outside.|she will call you back.|he is not at home.|we had a lot of fun.|"
        "I need some more time.|"
        "what do you think?|that was easy.|do not worry about it.|I have been looking for you.|it is getting late."
    ).split("|"),
    "item": (
        "people files books messages cars houses pages words seconds minutes items students days hours chairs dollars "
        "apples children letters tickets bottles cups boxes pictures questions miles friends"
    ).split(),
    "place": (
        "the room,the list,the city,the box,the building,the first part,the kitchen,the garden,the street,the office,"
        "the school,the shop,the park,the station,the hospital,the library,the bathroom,the bedroom,the garage,the hall"
    ).split(","),
    "device": "light music heating television radio alarm computer fan printer oven lamp speaker".split(),
    "when": (
        "now,again,tomorrow,before noon,last week,yesterday,this morning,tonight,next month,by train,by plane,together,"
        "after lunch,every day,once a week,at the weekend,in the evening,on time,as soon as possible,a long time ago"
    ).split(","),
    "ordinal": "first second third fourth fifth sixth seventh eighth ninth tenth last next".split(),
}

_NUMBERS: dict[str, Callable[[random.Random], str]] = {
    "number": lambda rng: str(rng.randint(0, rng.choice([10, 100, 100, 1000, 10000, 1000000]))),
    "small": lambda rng: str(rng.randint(2, 99)),
    "date": lambda rng: str(rng.randint(1, 28)),
    "year": lambda rng: str(rng.randint(1900, 2035)),
    "clock": lambda rng: f"{rng.randint(1, 12)}:{rng.choice(['00', '15', '30', '45', '05', '20', '50'])}",
    "digits": lambda rng: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 6))),
    "cents": lambda rng: f"{rng.randint(1, 200)}.{rng.randint(1, 99):02d}",
    "decimal": lambda rng: f"{rng.randint(0, 99)}.{rng.randint(1, 9)}",
}

_TEMPLATES = """
{hello} {Phrase}
{Phrase}
{Phrase} {Phrase}
{Thing} is {state}.
{hello} {Thing} is {state}.
Please {verb} {thing}.
Please {verb} {thing} {when}.
Can you {verb} {thing}?
Can you {verb} {thing} for {name}?
{Thing} and {thing} are {state}.
It will be {weather} in {city} on {day}.
The temperature is {small} degrees and it is {weather}.
Is {thing} {state}?
Your appointment is on {day}, {month} {date}.
The meeting starts at {clock}.
The train leaves at {clock} from {city}.
The total is {number} dollars.
The total is ${cents}.
That will be ${cents}, please.
{name} was born in {year} in {city}.
There are {number} {item} in {place}.
{name} and {name} went to {city} {when}.
I asked {name} to {verb} {thing}.
Today is {day}, {month} {date}, {year}.
The number is {digits}.
{name}, are you there?
{name}, can you hear me?
Where is {thing}?
Why is {thing} {state}?
When will {thing} be {state}?
About {small} percent of {item} are {state}.
If {thing} is {state}, {verb} {thing}.
Chapter {small}.
Turn on the {device} in {place}.
Turn off the {device} in {place}.
We need {number} more {item} to {verb} {thing}.
It costs {decimal} dollars.
The {ordinal} {item} are {state}.
I would like to {verb} {thing} {when}.
Do you want to {verb} {thing}?
She said that {thing} is {state}.
{name} is in {place}.
We met {name} in {city} in {year}.
He lives at {small} Park Street in {city}.
The {ordinal} of {month} is a {day}.
It is {clock} now.
My phone number is {digits}.
I have {small} {item} and {small} {item}.
Let us {verb} {thing} {when}.
Did {name} {verb} {thing} {when}?
{name} will {verb} {thing}, and {name} will {verb} {thing}.
I could not {verb} {thing}.
""".strip().splitlines()

_FIELD = re.compile(r"\{(\w+)\}")


def templated(rng: random.Random) -> str:
    """A sentence from a template drawn at random; numbers are in figures."""

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name in _NUMBERS:
            return _NUMBERS[name](rng)
        chosen: str = rng.choice(_LISTS[name.lower()])
        return chosen[:1].upper() + chosen[1:] if name[0].isupper() else chosen

    return _FIELD.sub(fill, rng.choice(_TEMPLATES))
