"""Test sentences: everyday sentences that training never sees, and a few longer texts."""

from __future__ import annotations

TEST_SENTENCES = """
The children played in the garden until it was dark.
I left my umbrella on the bus this morning.
Could you tell me the way to the station?
We are having soup and bread for dinner tonight.
My sister works in a small bookshop near the river.
The doctor will see you in ten minutes.
It has been raining since early yesterday.
Please put the milk back into the fridge.
He forgot to lock the door when he left.
Our neighbours have two dogs and a very old cat.
What time does the last train leave?
She bought a blue coat at the market.
The bridge is closed because of the strong wind.
I would rather walk than take a taxi.
They moved to the countryside three years ago.
Can I pay for this with a card?
The soup is too hot to eat.
Nobody knew the answer to the question.
He plays the guitar in a band with his friends.
We should leave before the traffic gets worse.
The museum opens at nine and closes at five.
I can't find my glasses anywhere.
She speaks three languages and is learning a fourth.
The baby slept through the whole night.
Would you like some sugar in your tea?
The old house at the end of the road is for sale.
My brother is coming to visit us next weekend.
This chair is more comfortable than it looks.
The lights went out just as we sat down to eat.
Don't forget to water the plants while I am away.
He wrote a long letter to his grandmother.
The shop on the corner sells fresh fruit.
I have never seen so many stars in the sky.
You can borrow my bicycle if you like.
The teacher asked us to read the first chapter.
It takes about half an hour to get there.
She was so tired that she fell asleep on the sofa.
The water in the lake is still very cold.
We watched an old film and went to bed early.
Is there a bank near here?
The pilot told us that we would land soon.
He cut his finger while he was making a salad.
The answer was right in front of us all the time.
I need to buy a present for my mother.
The road is wet, so please drive slowly.
They laughed at the joke for a long time.
The kitchen smells of coffee and warm bread.
How much does a ticket to the city cost?
She left her keys on the kitchen table.
The team won the match in the last minute.
My father taught me how to swim.
We had to wait for more than an hour.
The leaves turn red and yellow in autumn.
I will call you as soon as I get home.
There is a small hole in the roof.
He always drinks a glass of water before he goes to bed.
The party was a great success.
Have you ever been to the mountains in winter?
The dog ran across the field after the ball.
She painted the walls of her room green.
You should see a dentist about that tooth.
The boat left the harbour before sunrise.
I don't know where I put the map.
The farmer sold his horses last spring.
We need eggs, butter and a little flour.
The clock on the wall has stopped.
He opened the window to let some air in.
Turn left at the church and then go straight on.
The young man helped an old lady across the street.
I was surprised to hear from her again.
The heating doesn't work very well in this room.
She is the best cook in our family.
The birds in the tree woke me up.
Why didn't you tell me the truth?
We sat by the fire and told stories.
The company is looking for a new engineer.
His voice was so quiet that nobody heard him.
It is cheaper to travel by bus.
The rain stopped and the sun came out.
I have a headache and would like to lie down.
The waiter brought us the wrong order.
Her office is on the second floor.
They built the tower more than a hundred years ago.
Do you remember the name of that restaurant?
The river was too deep to cross on foot.
He has been a driver all his life.
We can meet in front of the theatre at eight.
The glass fell off the shelf and broke.
I like to read the newspaper with my breakfast.
The sea was calm and the sky was clear.
She gave the boy an apple and a piece of cheese.
The plan sounds good, but it will cost a lot of money.
My shoes are dirty from the walk in the forest.
The judge listened to both sides of the story.
Could you turn the music down a little?
The snow was so deep that the school stayed closed.
He keeps his tools in a wooden box.
The new road will be finished by the end of summer.
We have no time to lose.
Thank you for everything you have done for us.
""".strip().splitlines()

NUMBERS = """
The invoice is for 1,250 dollars and 75 cents.
Flight 482 leaves from gate 17 at 6:45.
She was born on May 3, 1988.
About 60% of the 300 seats were taken.
MY NEW ADDRESS IS 42 HILL STREET.
The recipe needs 2.5 cups of flour and 3 eggs.
Call 5 5 5, 0 1 9 9 after 10 o'clock.
In 2014 there were 7 million people in the city.
Room 305 is on the 3rd floor.
iT wAS thE Last DAY of OCTober.
""".strip().splitlines()

PARAGRAPH = (
    "We left the house early in the morning. The streets were still empty and the air was cold. My brother carried the "
    "heavy bag, and I took the map. After an hour we came to a small village. An old woman sold us bread and cheese. "
    "She "
    "asked us where we were going. We told her that we wanted to see the sea. It is not far, she said with a smile. "
    "Just "
    "follow the river and you will find it. In the evening we stood on the beach and watched the sun go down."
)

CLIP = "Two friends met on the old bridge, and talked for a while about the long summer."
