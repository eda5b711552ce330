// Decisions: sent to the server, confirmed once they are on disk, with an undo button.

import { change } from "/static/api.js";
import { say } from "/static/dom.js";
import { model } from "/static/model.js";

let queue = Promise.resolve(); // one at a time, in the order they were made
let message = null; // the latest: the button of an earlier one would undo another decision

/** Resolves once all decisions so far are saved. */
export const saved = () => queue;

function send(path, facts, said) {
  const turn = queue
    .then(async () => {
      const state = await change(path, facts);
      await model.refresh(state);
      message?.remove();
      message = said ? say(said, { action: { name: "Undo", run: undo } }) : null;
      return true;
    })
    .catch((error) => {
      say(error.message, { bad: true });
      return false;
    });
  queue = turn;
  return turn;
}

export const decide = (facts, said) => send("/api/decisions", { version: model.state.version, ...facts }, said);

export async function undo() {
  const what = model.state.undo;
  if (what && (await send("/api/undo", { version: model.state.version }))) say(`Undone: ${what}`);
}

export async function redo() {
  const what = model.state.redo;
  if (what && (await send("/api/redo", { version: model.state.version }))) say(`Redone: ${what}`);
}

export const activate = (version) => send("/api/version", { version });

export const rename = (number, name) =>
  decide({ kind: "rename", number, name }, `Saved: ${model.name(number)} is now ${name}`);
export const accept = (number, accepted) =>
  decide(
    { kind: "accept", number, accepted },
    `Saved: ${model.name(number)} is ${accepted ? "accepted" : "open again"}`,
  );
export const merge = (numbers) =>
  decide({ kind: "merge", numbers }, `Saved: ${numbers.length} ${model.nouns} are now ${model.name(numbers[0])}`);
export const split = (number, parts) =>
  decide({ kind: "split", number, parts }, `Saved: ${model.name(number)} is split into ${parts}`);

async function withRows(facts, rows, said) {
  const done = await decide({ ...facts, rows }, said);
  if (done) model.select([]);
  return done;
}
const some = (rows) => `${rows.length.toLocaleString("en")} row${rows.length === 1 ? "" : "s"}`;
export const move = (rows, to) =>
  withRows({ kind: "move", to }, rows, `Saved: ${some(rows)} moved to ${model.name(to)}`);
/** Stored as a move of the row to its own class, which marks it as assigned by hand. */
export const keepLabel = (row, number) =>
  withRows({ kind: "move", to: number }, [row], `Saved: the label ${model.name(number)} is kept`);
/** The same for the predicted class of a row. */
export const confirmClass = (row, number) =>
  withRows({ kind: "move", to: number }, [row], `Saved: ${model.name(number)} is confirmed`);
export const moveToNew = (rows, name) =>
  withRows({ kind: "move", name }, rows, `Saved: ${some(rows)} moved to the new ${model.noun} ${name}`);
export const junk = (rows, is) =>
  withRows(
    { kind: "junk", junk: is },
    rows,
    is ? `Saved: ${some(rows)} marked as junk` : `Saved: ${some(rows)} restored from junk`,
  );
