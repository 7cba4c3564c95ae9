// The tab with the parts: their pictures or words, the classes that use them, and their settings.
import { $, ask, get, make, own, percent, post, say } from "./elements.js";
import { known } from "./studio.js";

export async function drawParts() {
  const { parts, doing } = await get("parts");
  $("partsNews").textContent = doing ?? "";
  $("partGrid").replaceChildren(...parts.map(part => card(part, parts)));
}

async function edit(words) {
  const answer = await post("part", words);
  $("partsNews").textContent = answer.text;
  drawParts();
}

function card(part, parts) {
  const title = make("h2", { dir: "auto" });
  title.textContent = part.name;
  const words = make("p", { dir: "auto", class: "quiet" });
  words.textContent = part.words ?? "";
  const used = make("p", { class: "quiet" }, ...part.classes.flatMap(([name, share], at) => [at ? ", " : "", own(name), ` ${percent(share)}`]));
  const others = parts.filter(other => other.number !== part.number);
  const button = (text, onclick) => make("button", { onclick, "aria-label": `${text} ${part.name}` }, text);
  return make("article", { class: part.frozen ? "part frozen" : "part" }, title,
    part.picture ? make("img", { src: part.picture, alt: `Part ${part.number}` }) : words, used,
    make("p", { class: "row" },
      button("Name", async () => { const name = await ask("Name this part", "Name", part.named ?? ""); if (name) edit({ do: "name", part: part.number, name }); }),
      button(part.frozen ? "Thaw" : "Freeze", () => edit({ do: part.frozen ? "thaw" : "freeze", part: part.number })),
      button("Merge", async () => {
        const name = await ask("Merge with which part?", "Part", "", others.map(other => other.name));
        const other = others.find(entry => entry.name === name);
        if (name && !other) say(`There is no other part ${name}.`);
        if (other) edit({ do: "merge", part: part.number, with: other.number });
      }),
      button("Split", () => edit({ do: "split", part: part.number })),
      button("Forbid", async () => { const name = await ask("Forbid this part for which class?", "Class", "", known.classes); if (name) edit({ do: "forbid", part: part.number, class: name }); })));
}
