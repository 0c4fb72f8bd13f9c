// Reads /v1/status and /v1/lift every few seconds and puts what changed into the page.

import {ARMS, attributes, curves, element, forest, number, signed, sized, spark, text} from "./charts.js";

const STATUS_EVERY = 2000, LIFT_EVERY = 4000, LONGEST = 30000;  // milliseconds
const FEWEST = 20, MOST = 30;  // users of a point of the curve, and interactions that are drawn
const $ = id => document.getElementById(id);
const KEY = "newcomer-token";
const seen = {status: null, lift: null, at: 0};

class Refused extends Error {
  constructor(status) { super(String(status)); this.status = status; }
}

function token() {
  try { return sessionStorage.getItem(KEY) || ""; } catch { return ""; }
}

async function read(path) {
  const headers = token() ? {authorization: `Bearer ${token()}`} : {};
  const answer = await fetch(path, {headers, cache: "no-store"});
  if (!answer.ok) throw new Refused(answer.status);
  return answer.json();
}

// What is shown.

function ago(seconds) {
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, name] = units.find(([size]) => seconds >= size) || units[3];
  const count = Math.max(0, Math.floor(seconds / size));
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}

function showStatus(status) {
  text($("about"), `model ${status.model.slice(0, 8)} (generation ${status.generation}), ${status.policy}, `
    + `${status.store}, up ${ago(status.now - status.started)}`);
  text($("version"), `newcomer ${status.version}`);
  text($("rate"), number(Number(status.speed.per_second.toFixed(1))));
  text($("p50"), number(status.speed.p50)); text($("p99"), number(status.speed.p99));
  text($("users"), status.users.toLocaleString("en")); text($("events"), status.events.toLocaleString("en"));
  spark($("spark"), status.speed.last_minute);
  const most = Math.max(...status.served.map(one => one.share), 1e-9);
  bars($("actions"), status.served.map(one => ({name: one.name ?? (one.action === null ? "(no id)" : String(one.action)),
    share: one.share / most, words: `${(100 * one.share).toFixed(0)}%`, arm: ""})));
  rows($("models"), [...status.models].reverse().slice(0, 8).map(one => [
    `${one.id.slice(0, 8)} · ${one.status}${one.generation === null ? "" : `, generation ${one.generation}`}`,
    `rank ${one.facts.rank}, ${number(one.facts.actions)} actions, ${ago(status.now - one.staged)} old`,
    one.status === "serving" ? "good" : ""]));
  rows($("errors"), status.errors.slice(0, 6).map(one => [
    `${one.status} ${one.code}${one.count > 1 ? ` (${one.count} times)` : ""}`,
    `${one.route.replaceAll("_", " ")}, ${ago(status.now - one.at)} ago`, one.status >= 500 ? "bad" : ""]));
  text($("errors-note"), status.errors.length ? "" : "None since this process began.");
}

function bars(holder, list) {
  const nodes = sized(holder, list.length, () => {
    const row = document.createElement("div"), what = document.createElement("div"), track = document.createElement("div");
    row.className = "row"; what.className = "what"; track.className = "track";
    const full = document.createElement("div"), mark = document.createElement("div");
    full.className = "full"; mark.className = "mark";
    what.append(document.createElement("span"), document.createElement("span")); track.append(full, mark);
    row.append(what, track);
    return row;
  });
  list.forEach((one, i) => {
    const [what, track] = nodes[i].children, [full, mark] = track.children;
    text(what.firstChild, one.name); text(what.lastChild, one.words);
    full.className = `full ${one.arm}`;
    full.style.width = `${Math.min(100, 100 * one.share)}%`;
    mark.hidden = one.expected === undefined;
    mark.style.left = `${Math.min(99.5, 100 * (one.expected ?? 0))}%`;
  });
}

function rows(holder, list) {
  const nodes = sized(holder, list.length, () => {
    const row = document.createElement("div");
    row.className = "row";
    row.append(document.createElement("b"), document.createElement("span"));
    return row;
  });
  list.forEach(([first, second, mood], i) => {
    text(nodes[i].firstChild, first); text(nodes[i].lastChild, second);
    nodes[i].firstChild.className = mood;
  });
}

function showLift(lift) {
  const main = lift.lift[0], value = $("lift-value");
  const sure = main && main.low !== null;
  text(value, main ? signed(main.difference) : "–");
  value.className = sure && main.low > 0 ? "good" : sure && main.high < 0 ? "bad" : "";
  text($("lift-unit"), main ? `per decision, over ${main.against}` : "");
  text($("lift-words"), lift.words[0] + (lift.behind ? ` (${number(lift.behind)} changes are not counted yet)` : ""));
  forest($("forest"), lift.lift.map(one => ({name: `over ${one.against}`, value: one.difference, low: one.low, high: one.high,
    words: one.low === null ? `${signed(one.difference)}, too few users for an interval`
      : `${signed(one.difference)} (${signed(one.low)} to ${signed(one.high)})`})));
  const {warning, arms} = lift.sample_ratio;
  $("warning").hidden = !warning;
  text($("warning"), warning || "");
  const users = arms.reduce((sum, one) => sum + one.users, 0) || 1;
  bars($("arms"), arms.map(one => ({name: one.arm, arm: one.arm, share: one.users / users, expected: one.expected / users,
    words: `${one.users.toLocaleString("en")} (${(100 * one.users / users).toFixed(1)}%)`})));
  text($("arms-note"), arms.length ? `The mark is where the shares should bring them${warning ? "" : "; they fit"}.` : "Nobody yet.");
  const [rewarded, all] = ["rewarded", "interactions"].map(name => arms.reduce((sum, one) => sum + one[name], 0));
  text($("rewarded"), all ? `${(100 * rewarded / all).toFixed(0)}%` : "–");
  showCurves(lift, main);
}

function showCurves(lift, main) {
  const series = {}, gain = {};
  for (const step of lift.by_interaction.slice(0, MOST)) {
    for (const one of step.arms) {
      if (one.users >= FEWEST) (series[one.arm] ??= []).push({x: step.interaction, y: one.mean, low: one.low, high: one.high});
    }
    const own = main && step.lift.find(one => one.against === main.against && one.users >= FEWEST);
    if (own) (gain.treated ??= []).push({x: step.interaction, y: own.difference, low: own.low, high: own.high});
  }
  const names = ARMS.filter(arm => series[arm]);
  const said = names.map(arm => `${arm} from ${number(series[arm][0].y)} to ${number(series[arm].at(-1).y)}`).join(", ");
  curves($("curve"), series, {label: "Mean reward by number of interactions", unit: "interaction of a user",
    description: said || "No interaction has enough users yet."});
  curves($("gain"), gain, {label: "Lift by number of interactions", height: 200, zero: true, unit: "interaction of a user",
    description: main ? `Treated less ${main.against}` : "Nothing to compare yet."});
  text($("h-gain"), main ? `Lift over ${main.against}, by interaction` : "Lift by interaction");
  $("gain").hidden = $("h-gain").hidden = !gain.treated;
  const items = sized($("legend"), names.length, () => {
    const item = document.createElement("li"), svg = element("svg", {viewBox: "0 0 30 10", "aria-hidden": "true"});
    svg.append(element("path", {d: "M1,5L29,5"}));
    item.append(svg, document.createElement("span"));
    return item;
  });
  names.forEach((arm, i) => {
    attributes(items[i].querySelector("path"), {class: `line ${arm}`});
    text(items[i].lastChild, arm);
  });
}

// When it is read.

function state(words, bad = false) {
  text($("state"), words);
  $("state").classList.toggle("bad", bad);
}

function ask(note) {
  $("main").hidden = true;
  $("ask").hidden = false;
  if (note) text($("ask-note"), note);
  state("waiting for a token", true);
}

function repeat(path, pause, show) {
  let failed = 0;
  async function turn() {
    if (document.hidden || !$("ask").hidden) return setTimeout(turn, pause);
    try {
      const found = await read(path);
      failed = 0;
      seen[path.split("/").at(-1)] = found; seen.at = Date.now();
      $("main").hidden = false;
      show(found);
      state("serving");
    } catch (problem) {
      if (problem.status === 401) ask("This token is not known. It stays in this tab.");
      else if (problem.status === 403) ask("This token may decide, not look: an admin token is needed.");
      else if (problem instanceof Refused || problem instanceof TypeError) {
        failed += 1;
        const since = seen.at ? `, last news ${ago((Date.now() - seen.at) / 1000)} ago` : "";
        state((problem.status === 503 ? "the service is not ready or its store is away" : "the service does not answer") + since, true);
      } else throw problem;
    }
    setTimeout(turn, Math.min(pause * 2 ** Math.min(failed, 4), LONGEST));
  }
  turn();
}

$("ask").addEventListener("submit", event => {
  event.preventDefault();
  try { sessionStorage.setItem(KEY, $("token").value.trim()); } catch { /* kept for this look alone */ }
  $("token").value = "";
  $("ask").hidden = true;
  state("connecting");
});
addEventListener("resize", () => {
  if (seen.status) showStatus(seen.status);
  if (seen.lift) showLift(seen.lift);
});
if (document.documentElement.dataset.token === "needed" && !token()) ask();
repeat("v1/status", STATUS_EVERY, showStatus);
repeat("v1/lift", LIFT_EVERY, showLift);
