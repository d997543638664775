// What both client scripts share: packages from the folder that NODE_CLIENTS names, and checks that do not stop at one.
import { createRequire } from "node:module";
import { join } from "node:path";

export const packageOf = createRequire(join(process.env.NODE_CLIENTS, "package.json"));

export function assert(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}

export async function checks(named) {
  const results = {};
  for (const [name, check] of Object.entries(named)) {
    results[name] = await check().then(() => true, (error) => String(error));
  }
  console.log(JSON.stringify(results));
}
