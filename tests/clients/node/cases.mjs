// What the programs for Node share: their arguments, and how they tell what came of their cases.
// Arguments: the base URLs for the chat and the embedding model. One line of JSON on standard output: case -> result.

export const [chatUrl, embeddingUrl] = process.argv.slice(2);
export const chatModel = "tiny";
export const embeddingModel = "minilm";
export const key = "unused";
export const texts = ["my card was charged twice", "the weather is nice", "a"];
export const question = "Say something about the sea.";

export function check(holds, what) {
  if (!holds) throw new Error(what);
}

// The error that a call fails with, as its SDK tells it.
export async function raised(call) {
  let value;
  try {
    value = await call();
  } catch (error) {
    return { error: error.constructor.name, status: error.status ?? error.statusCode ?? null };
  }
  throw new Error(`no error, but ${JSON.stringify(value)}`);
}

export async function run(cases) {
  const results = {};
  for (const [name, work] of Object.entries(cases)) {
    try {
      results[name] = { result: await work() };
    } catch (error) {
      results[name] = { failed: String(error.stack ?? error).slice(0, 2000) };
    }
  }
  console.log(JSON.stringify(results));
}
