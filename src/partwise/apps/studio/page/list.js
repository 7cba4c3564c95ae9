// All samples as a list, the most doubtful first: the way to label many without a mouse.
import { $, ask, dot, get, make, own, percent, showSample } from "./parts-of-page.js";
import { known, label, rename, unlabel } from "./studio.js";

let start = 0, asking = 0;

const ticked = () => [...$("rows").querySelectorAll("input:checked")].map(box => Number(box.value));
const again = () => { start = 0; drawList(); };

export function setUpList() {
  $("listClass").addEventListener("change", again);
  $("listSearch").addEventListener("input", again);
  $("listMore").addEventListener("click", () => { start += 40; drawList(true); });
  $("listLabel").addEventListener("click", async () => {
    const chosen = ticked();
    if (!chosen.length) return;
    const name = await ask(`Label ${chosen.length} samples`, "Class", "", known.classes);
    if (name) { await label(name, chosen); again(); }
  });
  $("listTake").addEventListener("click", async () => {
    const chosen = ticked().filter(i => known.given[i]);
    if (chosen.length) { await unlabel(chosen); again(); }
  });
  $("classRename").addEventListener("click", async () => {
    const name = $("listClass").value;
    const to = await ask(`Rename ${name}`, "New name; that of another class merges the two", name, known.classes);
    if (to && to !== name) { await rename(name, to); $("listClass").value = ""; again(); }
  });
  $("classDelete").addEventListener("click", async () => {
    const name = $("listClass").value, n = known.counts[name]?.labels ?? 0;
    const sure = await ask(`Delete ${name}? Its ${n} labels are taken back`, "Type the name of the class", "");
    if (sure === name) { await rename(name, null); $("listClass").value = ""; again(); }
  });
}

export async function drawList(more = false) {
  const wanted = $("listClass").value;
  const options = ["", ...known.classes].map(name => { const option = make("option", { value: name }); option.textContent = name || "all, most doubtful first"; return option; });
  $("listClass").replaceChildren(...options);
  $("listClass").value = known.classes.includes(wanted) ? wanted : "";
  const shown = $("listClass").value, search = $("listSearch").value.trim();
  $("classRename").disabled = $("classDelete").disabled = !shown;
  const asked = ++asking, found = await get("list", { ...(shown ? { class: shown } : {}), ...(search ? { search } : {}), start, n: 40 });
  if (asked !== asking) return; // another question was asked meanwhile
  $("listMore").hidden = found.length < 40;
  const rows = found.map(sample => {
    const box = make("input", { type: "checkbox", value: sample.i, "aria-label": `Choose ${sample.id}` });
    const what = make("span", { class: "what", dir: "auto" });
    what.textContent = sample.text?.slice(0, 160) ?? sample.id;
    const name = make("span", { class: "what" }, ...(sample.given ? [own(sample.given), " (given)"] : sample.suggestion ? [own(sample.suggestion), ` ${percent(sample.sure)}`] : []));
    return make("li", {}, box, sample.picture ? showSample(sample) : null, what, dot(known.classes.indexOf(sample.given ?? sample.suggestion)), name);
  });
  if (more) $("rows").append(...rows); else $("rows").replaceChildren(...rows);
}
