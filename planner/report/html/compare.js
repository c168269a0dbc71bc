// Candidates side by side: what differs first, each row on one scale, beside the first candidate.
function sideBySide(columns, names, figures, settings) {
  const box = document.createElement('div');
  const add = (tag, content, into) => { const made = document.createElement(tag); made.textContent = content; into.append(made); return made; };
  const differs = row => row.texts.some(text => text !== row.texts[0]);
  const ratio = (amount, first) => (amount === first ? 'the same' : first ? `× ${Number((amount / first).toPrecision(3))}` : '');
  function table(caption, rows, into) {
    if (!rows.length) return;
    const made = add('table', '', into), head = add('tr', '', add('thead', '', made)), body = add('tbody', '', made);
    add('caption', caption, made);
    add('th', '', head);
    for (const name of columns) add('th', name, head).scope = 'col';
    for (const { name, texts, amounts } of rows) {
      const row = add('tr', '', body), most = amounts && Math.max(...amounts);
      add('th', name, row).scope = 'row';
      texts.forEach((text, at) => {
        const cell = add('td', text, row);
        if (!amounts || !differs({ texts }) || amounts.some(amount => typeof amount !== 'number')) return;
        if (at) add('small', ratio(amounts[at], amounts[0]), cell);
        cell.className = 'b';
        cell.style.setProperty('--w', `${(100 * amounts[at]) / most}%`);
      });
    }
  }
  add('h2', names, box);
  table('Figures that differ', figures.filter(differs), box);
  table('Settings that differ', settings.filter(differs), box);
  const same = [...figures, ...settings].filter(row => !differs(row)), details = document.createElement('details');
  if (same.length) { box.append(details); add('summary', 'The same in all', details); table('The same in all', same, details); }
  return box;
}
