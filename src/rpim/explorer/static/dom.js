// DOM helpers: user text is only ever inserted as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** An element with properties, attributes (names with a dash, and role), listeners (on...) and children. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === "style") Object.assign(node.style, value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
export const percent = (share) => (share === null || share === undefined ? "—" : `${Math.round(100 * share)}%`);

/** Debounce. */
export function later(work, wait) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}

export function say(text, { bad = false, action = null, seconds = 4 } = {}) {
  const message = el("div", { className: bad ? "message bad" : "message" }, el("span", {}, text));
  if (action)
    message.append(
      el(
        "button",
        {
          onclick: () => {
            message.remove();
            action.run();
          },
        },
        action.name,
      ),
    );
  byId("messages").append(message);
  setTimeout(() => message.remove(), (bad ? 2 : 1) * seconds * 1000);
  return message;
}
