"use strict";
// Long tables sort by a click on a head, and show the rows that hold a text. Sums stay last.
(() => {
  const LEAST = 8;

  const plain = (cell) =>
    [...cell.childNodes]
      .filter((node) => node.nodeName !== "SMALL" && node.nodeName !== "I")
      .map((node) => node.textContent)
      .join("")
      .trim();
  const number = (text) => {
    const found = /^[+±-]?\d+(\.\d+)?/.exec(text.replace(/−/g, "-").replace(/^[<>] /, ""));
    return found ? parseFloat(found[0].replace("±", "")) : NaN;
  };

  const sorted = (rows, at, down) => {
    const keyed = rows.map((row) => [row, plain(row.cells[at])]);
    const values = new Map(keyed.map(([row, text]) => [row, number(text)]));
    const numeric = keyed.filter(([, text]) => text && text !== "–")
      .every(([row]) => !isNaN(values.get(row)));
    const sign = down ? -1 : 1;
    // Where there is nothing comes last, however the rest is sorted.
    return keyed.sort(([a, one], [b, two]) => {
      if (!numeric) return sign * one.localeCompare(two);
      const [x, y] = [values.get(a), values.get(b)];
      return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : sign * (x - y);
    }).map(([row]) => row);
  };

  const sortable = (table, rows, sums) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      if (head.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        const down = before !== "descending";
        // The third click gives back the order of the page.
        const order = before === "ascending" ? rows : sorted(rows, at, down);
        if (before !== "ascending") head.setAttribute("aria-sort", down ? "descending" : "ascending");
        table.tBodies[0].append(...order, ...sums);
      });
    });
  };

  const filterable = (table, rows) => {
    const box = table.closest(".scroll");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    label.className = "filter";
    input.type = "search";
    label.append("Filter ", input, " ", count);
    box.before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = wanted ? `${shown} of ${rows.length} rows` : "";
    });
  };

  for (const table of document.querySelectorAll(".scroll > table")) {
    const every = [...table.tBodies[0].rows];
    const sums = every.filter((row) => row.classList.contains("sum"));
    const rows = every.filter((row) => !sums.includes(row));
    if (rows.length < LEAST) continue;
    filterable(table, rows);
    if (table.tHead.rows.length === 1) sortable(table, rows, sums);
  }
})();
