/** Pairs of what somebody said once and what is asked later, by which thresholds of similarity are measured. */

export interface Pairs {
  /** What was said helps to answer. */
  readonly related: readonly (readonly [said: string, asked: string])[];
  /** It does not, though the subject may be near. */
  readonly unrelated: readonly (readonly [said: string, asked: string])[];
}

/** In other words: few of them in common. */
export const BY_MEANING: Pairs = {
  related: [
    ["My new flat is on the fourth floor and has no elevator.", "Is there a lift?"],
    ["I forgot my login credentials and cannot sign in", "How do I reset my password?"],
    ["My cat's name is Whiskers", "What is my pet called?"],
    ["We moved to Lisbon last spring.", "Which city do I live in?"],
    ["I am allergic to peanuts.", "Is there any food that I must not eat?"],
    ["The parcel has not arrived yet.", "Where is my delivery?"],
    ["My daughter turns six in March.", "How old is my child?"],
    ["I would rather be called after lunch.", "When is a good time to phone me?"],
    ["The invoice was charged twice on my card.", "What was wrong with the payment?"],
    ["We are getting married on the tenth of June.", "What is the date of the wedding?"],
    ["I work as a nurse in the children's hospital.", "What is my job?"],
    ["My car broke down on the motorway.", "What happened to my vehicle?"],
    ["I am learning to play the violin.", "Which musical instrument do I practise?"],
    ["Our flight to Oslo leaves at seven in the morning.", "When does the plane depart?"],
    ["I do not eat meat or fish.", "Am I a vegetarian?"],
    ["The washing machine leaks water.", "Which appliance is broken?"],
    ["Please write to me in French, it is my mother tongue.", "Which language do I speak?"],
    ["I have run three marathons this year and my knees hurt.", "Do I do any sports?"],
    ["The boiler stopped yesterday, so the house is freezing.", "Does the heating work?"],
    ["Put the meeting on Thursday, I am away on Friday.", "On which days am I free?"],
  ],
  unrelated: [
    ["My new flat is on the fourth floor and has no elevator.", "What is the capital of Peru?"],
    ["I forgot my login credentials and cannot sign in", "What is my pet called?"],
    ["My cat's name is Whiskers", "How do I reset my password?"],
    ["We moved to Lisbon last spring.", "How do I bake bread?"],
    ["I am allergic to peanuts.", "When does the plane depart?"],
    ["The parcel has not arrived yet.", "Am I a vegetarian?"],
    ["My daughter turns six in March.", "Which appliance is broken?"],
    ["I would rather be called after lunch.", "What is the square root of two?"],
    ["The invoice was charged twice on my card.", "Is there a lift?"],
    ["We are getting married on the tenth of June.", "Which musical instrument do I practise?"],
    ["I work as a nurse in the children's hospital.", "How far away is the moon?"],
    ["My car broke down on the motorway.", "What is the date of the wedding?"],
    ["I am learning to play the violin.", "Where is my delivery?"],
    ["Our flight to Oslo leaves at seven in the morning.", "Is there any food that I must not eat?"],
    ["I do not eat meat or fish.", "Who wrote this poem?"],
    ["The washing machine leaks water.", "How old is my child?"],
    ["The weather is nice in Paris today", "What is my job?"],
    ["Thank you, that was all.", "What was wrong with the payment?"],
    // The same field, and another question.
    ["My new flat is on the fourth floor and has no elevator.", "Where can I buy a sofa?"],
    ["We moved to Lisbon last spring.", "What is the weather like in Berlin?"],
    ["My car broke down on the motorway.", "How much is a train ticket?"],
    ["I am allergic to peanuts.", "What time does the supermarket close?"],
    ["Our flight to Oslo leaves at seven in the morning.", "Do I need a visa for Japan?"],
  ],
};

/** In the same words: what an embedding can tell that knows nothing of meaning. */
export const BY_WORDS: Pairs = {
  related: [
    ["The ferry to Lisbon leaves at noon", "When does the ferry to Lisbon leave?"],
    ["The capital of Portugal is Lisbon", "What is the capital of Portugal?"],
    ["My order number is A-1002", "What is the number of my order?"],
    ["The invoice for March was charged twice", "Why was the March invoice charged twice?"],
    ["My cat's name is Whiskers", "What is the name of my cat?"],
    ["The door code of the office is 4711", "What is the code of the office door?"],
    ["Our flight to Oslo leaves at seven", "When does our flight to Oslo leave?"],
    ["My daughter's birthday is in March", "When is my daughter's birthday?"],
    ["The washing machine leaks water again", "Why does the washing machine leak water?"],
    ["I am allergic to peanuts and shellfish", "Am I allergic to shellfish?"],
    ["The meeting with Ada was moved to Friday", "When is the meeting with Ada?"],
    ["The wifi password of the guest network is swordfish", "What is the password of the guest network?"],
    ["Please note that the delivery address has changed: it is 12 Harbour Street now", "What is my delivery address?"],
    ["The boiler in the cellar was repaired by Grace on Monday", "Who repaired the boiler?"],
  ],
  unrelated: [
    ["The ferry to Lisbon leaves at noon", "How do I bake a loaf of bread?"],
    ["The capital of Portugal is Lisbon", "Why does my washing machine leak?"],
    ["My order number is A-1002", "Who wrote this poem about autumn?"],
    ["The invoice for March was charged twice", "Can you recommend a good restaurant?"],
    ["My cat's name is Whiskers", "How far away is the moon?"],
    ["The door code of the office is 4711", "Translate this sentence into French"],
    ["Our flight to Oslo leaves at seven", "What should I cook tonight?"],
    ["My daughter's birthday is in March", "Explain how a transistor works"],
    ["The washing machine leaks water again", "When is the meeting with Ada?"],
    ["I am allergic to peanuts and shellfish", "What is the password of the guest network?"],
    ["The meeting with Ada was moved to Friday", "How many people live in Norway?"],
    ["The wifi password of the guest network is swordfish", "Where is my order?"],
    ["Thank you, that was all for today", "What is the capital of Portugal?"],
    // Nothing in common but the small words.
    ["What is the name of the king of Spain?", "What is the price of the ticket?"],
    ["The invoice is in the folder on the desk", "The cat is on the roof of the house"],
  ],
};
