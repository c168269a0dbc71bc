(() => {
  const table = document.querySelector('.n table'), body = table.tBodies[0], [top, ...rows] = body.rows;
  const sizes = {'': 1, k: 1e3, M: 1e6, B: 1e9, T: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30};
  'kMGTPEZYRQ'.split('').forEach((letter, power) => { sizes[letter + 'FLOP'] = 1000 ** (power + 1); });
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const found = column && /^([\d,.]+) ?([A-Za-z]*)$/.exec(text);
    const unit = found && (column > 1 && found[2] === 'B' ? '' : found[2]); // B is a byte but for parameters
    return found ? found[1].replaceAll(',', '') * sizes[unit] : text;
  };
  [...top.cells].forEach((head, column) => {
    const button = document.createElement('button');
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      table.querySelectorAll('[aria-sort]').forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const order = (a, b) => {
        const x = value(a, column), y = value(b, column);
        if (x === '' || y === '') return (x === '') - (y === '');
        const by = column ? x - y : x.localeCompare(y);
        return up ? by : -by;
      };
      body.append(...rows.sort(order));
    };
  });
  const label = document.createElement('label'), input = document.createElement('input');
  label.append('Filter ', input);
  input.type = 'search';
  input.oninput = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  };
  table.parentElement.before(label);
})();
