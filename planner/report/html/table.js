// The table of models: sorted by its headings, filtered, each peak on one scale beside a device's memory. The fragment holds what is chosen.
(() => {
  const box = document.querySelector('.n'), table = box.querySelector('table'), body = table.tBodies[0], [top, ...rows] = body.rows;
  const add = (tag, content, into) => { const made = document.createElement(tag); made.textContent = content; into.append(made); return made; };
  const sizes = {'': 1, k: 1e3, M: 1e6, B: 1e9, T: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30};
  'kMGTPEZYRQ'.split('').forEach((letter, power) => { sizes[letter + 'FLOP'] = 1000 ** (power + 1); });
  const value = (row, column) => {
    const cell = row.cells[column], text = cell.textContent.trim();
    if (cell.className.startsWith('v')) return Number(row.dataset.b);
    const found = column && /^([\d,.]+) ?([A-Za-z]*)$/.exec(text);
    const unit = found && (column > 1 && found[2] === 'B' ? '' : found[2]); // B is a byte but for parameters
    return found ? found[1].replaceAll(',', '') * sizes[unit] : text;
  };
  const state = { device: box.dataset.device, filter: '', sort: '', compare: '', B: '', n: '' };
  function keep() {
    const query = new URLSearchParams(Object.entries(state).filter(([name, value]) => value !== (name === 'device' ? box.dataset.device : '')));
    if (`${query}` || location.hash.includes('=')) history.replaceState(null, '', `${query}` ? `#${query}` : location.pathname + location.search);
  }

  function sort() {
    const up = state.sort[0] !== '-', column = [...top.cells].findIndex(head => head.textContent === state.sort.replace('-', ''));
    for (const head of top.cells) head.removeAttribute('aria-sort');
    if (column < 0) return;
    top.cells[column].setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const keyed = rows.map(row => [value(row, column), row]);
    keyed.sort(([x], [y]) => {
      if (x === '' || y === '') return (x === '') - (y === '');
      const by = column ? x - y : x.localeCompare(y);
      return up ? by : -by;
    });
    body.append(...keyed.map(([, row]) => row));
  }

  function headings() {
    for (const head of top.cells) {
      if (head.className) continue;
      const name = head.textContent, button = add('button', name, head);
      head.replaceChildren(button);
      button.onclick = () => { state.sort = state.sort === name ? `-${name}` : name; sort(); keep(); };
    }
  }

  if (!box.dataset.devices) { headings(); return; }
  const devices = new Map(box.dataset.devices.split(' ').map(one => one.split(':')));
  const texts = rows.map(row => row.textContent.toLowerCase()), titles = rows.map(row => row.cells[0].textContent);
  const AFTER = [5, 6, 7, 8], written = rows.map(row => [...row.cells].map(cell => cell.textContent)), needs = rows.map(row => row.dataset.b);
  let solve = null;
  const scale = add('th', '', top), drawn = rows.map(row => row.insertCell()), verdicts = rows.map(row => row.insertCell());
  scale.className = 'w';
  add('th', 'verdict', top);
  headings();

  const boxes = rows.map((row, number) => {
    const check = document.createElement('input');
    Object.assign(check, { type: 'checkbox', ariaLabel: `Put ${titles[number]} side by side` });
    check.onchange = () => { state.compare = titles.filter((_, at) => boxes[at].checked).join('|'); beside(); keep(); };
    row.cells[0].prepend(check, ' ');
    return check;
  });

  const form = document.createElement('div'), said = document.createElement('p');
  const field = (name, tag) => { const label = add('label', `${name} `, form); return add(tag, '', label); };
  const select = field('Device', 'select'), input = field('Filter', 'input');
  form.className = 'first';
  said.setAttribute('role', 'status');
  input.type = 'search';
  const sizesOf = typeof DecompressionStream === 'undefined' ? [] : ['B', 'n'].map(name => {
    const one = field(`${name} of all`, 'input');
    Object.assign(one, { name, inputMode: 'numeric', pattern: '[1-9][0-9]{0,17}', placeholder: 'as in each spec' });
    one.oninput = () => { if (one.validity.valid) { state[name] = one.value; recalculate(); keep(); } };
    return one;
  });
  for (const name of devices.keys()) select.add(new Option(name, name));

  function compare() {
    const memory = Number(devices.get(state.device)), most = rows.reduce((most, row) => Math.max(most, row.dataset.b), 0), end = Math.min(Math.max(most, memory), 2.5 * memory);
    let fitting = 0, shown = 0;
    scale.textContent = `peak and reserve; line: ${state.device}`;
    box.style.setProperty('--d', `${(100 * memory) / end}%`);
    rows.forEach((row, number) => {
      const needed = Number(row.dataset.b), over = needed - memory;
      drawn[number].className = needed > end ? 'w cut' : 'w';
      drawn[number].style.setProperty('--w', `${Math.min(100, (100 * needed) / end)}%`);
      const why = row.dataset.why;
      verdicts[number].textContent = why ? `– ${why}` : over > 0 ? `✕ ${inBytes(BigInt(over))} over` : `✓ ${inBytes(BigInt(-over))} free`;
      verdicts[number].className = over > 0 || why ? 'v x' : 'v';
      if (!row.hidden) { shown += 1; fitting += over <= 0 && !why; }
    });
    said.textContent = `${exactly(fitting)} of ${exactly(shown)} fit ${state.device}, ${inBytes(BigInt(memory))} with the reserve.`;
  }

  const side = document.createElement('div'), SETTINGS = box.dataset.settings.split('|');
  function beside() {
    const chosen = rows.map((row, number) => [row, titles[number]]).filter(([, title]) => state.compare.split('|').includes(title));
    side.hidden = chosen.length < 2;
    if (side.hidden) return;
    const heads = [...top.cells].map((head, column) => [head.textContent, column]).filter(([, column]) => column && top.cells[column].className !== 'w');
    const figures = heads.map(([name, column]) => ({
      name,
      texts: chosen.map(([row]) => row.cells[column].textContent),
      amounts: name === 'verdict' ? null : chosen.map(([row]) => value(row, column)),
    }));
    const settings = SETTINGS.map((name, at) => ({ name, texts: chosen.map(([row]) => row.dataset.s.split('|')[at]) }));
    side.replaceChildren(sideBySide(chosen.map(([, title]) => title), 'Side by side', figures, settings));
  }

  // Puts the figures of another batch size or sequence length into all rows, or those of the specs.
  async function recalculate() {
    const inputs = { B: state.B, n: state.n }, other = inputs.B || inputs.n;
    if (other && !solve) solve = await whatIf(box.dataset.live);
    rows.forEach((row, number) => {
      const made = other ? solve(number, inputs) : { texts: AFTER.map(column => written[number][column]), needed: needs[number] };
      row.dataset.b = made.why ? 0 : made.needed;
      row.dataset.why = made.why || '';
      AFTER.forEach((column, at) => { row.cells[column].textContent = made.why ? '–' : made.texts[at]; });
      [[2, 'B'], [3, 'n']].forEach(([column, name]) => { row.cells[column].textContent = inputs[name] ? exactly(inputs[name]) : written[number][column]; });
    });
    compare();
    sort();
    beside();
  }

  function filter() {
    const words = state.filter.toLowerCase().split(/\s+/);
    rows.forEach((row, number) => { row.hidden = !words.every(word => texts[number].includes(word)); });
  }

  function read() {
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      if (name in state && (name !== 'device' || devices.has(value))) state[name] = value;
    }
    [select.value, input.value] = [state.device, state.filter];
    for (const one of sizesOf) { one.value = state[one.name]; if (!one.validity.valid) one.value = state[one.name] = ''; }
    titles.forEach((title, number) => { boxes[number].checked = state.compare.split('|').includes(title); });
    filter();
    if (solve || state.B || state.n) { recalculate(); return; }
    compare();
    sort();
    beside();
  }

  select.oninput = () => { state.device = select.value; compare(); beside(); keep(); };
  input.oninput = () => { state.filter = input.value; filter(); compare(); keep(); };
  addEventListener('hashchange', () => location.hash.includes('=') && read());
  side.className = 'n side';
  box.before(form, said);
  box.after(side);
  read();
})();
