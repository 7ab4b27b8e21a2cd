// After `npm install`: take out of package-lock.json what names a host. `integrity` stays, so npm still checks each package.
import { readFile, writeFile } from "node:fs/promises";

const lock = JSON.parse(await readFile("package-lock.json", "utf8"));
for (const each of Object.values(lock.packages)) {
  delete each.resolved;
  delete each.funding;
}
await writeFile("package-lock.json", `${JSON.stringify(lock, null, 2)}\n`);
