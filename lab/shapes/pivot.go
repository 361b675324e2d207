package shapes

// pivot brings a configuration into the basis; it returns false if rounding leaves no member to replace.
func (m *master) pivot(enter configuration) bool {
	step := m.direction(enter)
	leave := -1
	for k, d := range step {
		if d > tiny && (leave < 0 || m.time[k]*step[leave] < m.time[leave]*d) {
			leave = k
		}
	}
	if leave < 0 {
		return false
	}
	m.exchange(step, leave)
	m.reprice()
	return true
}

// direction returns how much each basis member shrinks for a unit of the entering configuration.
func (m *master) direction(enter configuration) []float64 {
	step := make([]float64, len(m.kinds))
	for k, row := range m.inverse {
		for j, n := range enter {
			step[k] += row[j] * float64(n)
		}
	}
	return step
}

func (m *master) exchange(step []float64, leave int) {
	pivot := m.inverse[leave]
	for j := range pivot {
		pivot[j] /= step[leave]
	}
	m.time[leave] /= step[leave]
	for k, row := range m.inverse {
		if k == leave || step[k] == 0 {
			continue
		}
		for j := range row {
			row[j] -= step[k] * pivot[j]
		}
		m.time[k] = max(0, m.time[k]-step[k]*m.time[leave])
	}
}

// reprice sets the prices at which each basis member is worth exactly its time.
func (m *master) reprice() {
	clear(m.price)
	for _, row := range m.inverse {
		for j, v := range row {
			m.price[j] += v
		}
	}
}
