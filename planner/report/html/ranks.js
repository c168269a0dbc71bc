// Kinds of devices side by side, on the scale of a device's memory: states by part, what else is allocated at the peak, and what is free.
const PARTS_OF_RANK = { weights: 'a0', gradients: 'a4', optimizer: 'a3', buffers: 'a14' };

// `ranks`: [which, peak, [[part, size]]]. What a device saves for backward is within the rest of its peak.
function devicesDrawn(ranks, memory, device) {
  const box = element('div', ''), most = ranks.reduce((top, [, peak]) => (peak > top ? peak : top), memory);
  const table = document.createElement('table'), names = ranks[0][2].map(([name]) => name).filter(name => PARTS_OF_RANK[name]);
  element('caption', 'Memory of each kind of device', table);
  const head = element('tr', '', element('thead', '', table)), body = element('tbody', '', table);
  for (const name of ['', ...names, 'all else at the peak', 'peak', 'free']) element('th', name, head).scope = 'col';
  for (const [which, peak, parts] of ranks) {
    const states = parts.filter(([name, size]) => PARTS_OF_RANK[name] && size), whole = states.reduce((sum, [, size]) => sum + size, 0n);
    const rest = peak > whole ? peak - whole : 0n, row = element('tr', '', body), bar = document.createElement('div');
    element('p', `${which}: ${inBytes(peak)} of ${inBytes(memory)}`, box).className = 'sub';
    const segment = (css, size, name) => {
      if (!size) return;
      const made = element('i', '', bar);
      made.className = css;
      made.style.flex = flexOf(size, most);
      made.title = `${name}: ${inBytes(size)}`;
      if (permille(size, most) > 80) { element('b', inBytes(size), made); element('span', name, made); }
    };
    for (const [name, size] of states) segment(PARTS_OF_RANK[name], size, name);
    segment('a6', rest, 'all else at the peak');
    segment('free', memory > peak ? memory - peak : 0n, `free in ${device}`);
    bar.className = 'bar';
    bar.setAttribute('role', 'img');
    bar.ariaLabel = `${which}: ${inBytes(peak)} at the peak; the table below has the parts`;
    box.append(bar);
    element('th', which, row).scope = 'row';
    const sizes = Object.fromEntries(parts);
    for (const size of [...names.map(name => sizes[name]), rest, peak]) element('td', inBytes(size), row);
    element('td', inBytes(memory - peak), row);
  }
  const details = element('details', '', box);
  element('summary', 'As a table', details);
  details.append(table);
  return box;
}
