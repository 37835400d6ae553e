// A box above every long table that shows the rows with a word in their first cell.
document$.subscribe(() => {
  for (const table of document.querySelectorAll("article table")) {
    const rows = Array.from(table.tBodies[0]?.rows ?? []);
    if (rows.length < 30) continue;
    const box = Object.assign(document.createElement("input"), { type: "search", placeholder: `search ${rows.length} rows by name` });
    box.className = "md-input md-input--stretch";
    box.addEventListener("input", () => {
      const word = box.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(word);
    });
    table.parentElement.before(box);
  }
});
