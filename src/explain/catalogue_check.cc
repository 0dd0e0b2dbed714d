// What reports of `qkv check` say.

#include "explain/catalogue.h"

namespace qkv {
namespace {

constexpr Message kMessages[] = {
    {"check.verdict.agrees", "agrees (numbers compared: {})", "khớp (số đã so sánh: {})",
     "일치 (비교한 수: {}개)", "一致（比较了 {} 个数）"},
    {"check.verdict.differs", "differs", "khác", "불일치", "不一致"},
    {"check.verdict.not_checkable", "not checkable", "không kiểm tra được", "확인 불가",
     "无法核对"},
    {"check.verdict.given", "given, the rest is computed from it",
     "cho trước, phần còn lại được tính từ đây", "주어진 값, 나머지는 여기서 계산",
     "已给定，其余由此计算"},

    {"check.difference.line", "line {}: expected {}, found {}", "dòng {}: đúng là {}, ghi là {}",
     "{}행: 올바른 값 {}, 적힌 값 {}", "第 {} 行：应为 {}，写作 {}"},
    {"check.difference.row", "line {}, row {} of the matrix: expected {}, found {}",
     "dòng {}, hàng {} của ma trận: đúng là {}, ghi là {}",
     "{}행, 행렬의 {}번째 행: 올바른 값 {}, 적힌 값 {}",
     "第 {} 行，矩阵第 {} 行：应为 {}，写作 {}"},
    {"check.difference.more", "and {} more", "và {} chỗ khác nữa", "그 밖에 {}곳", "另有 {} 处"},

    {"check.miss.cut_off", "cut off rather than rounded", "bị cắt bớt chữ số thay vì làm tròn",
     "반올림하지 않고 잘라 냄", "被截断而不是四舍五入"},
    {"check.miss.carried", "the rounding of the numbers before it was carried along",
     "sai số làm tròn của các số trước đó bị mang theo", "앞선 수의 반올림 오차가 이어짐",
     "带入了前面数字的舍入误差"},
    {"check.miss.factors", "the factors are not those of its operands",
     "các thừa số không phải của hai toán hạng trong tích vô hướng",
     "내적의 피연산자와 인수가 다름", "因子与点积的操作数不符"},

    {"check.reason.missing", "not given: {}", "thiếu {}", "주어지지 않음: {}", "没有给出 {}"},
    {"check.reason.no_name", "nothing says what it is", "không có tên cho biết đây là gì",
     "무엇인지 알려 주는 이름이 없음", "没有名称说明它是什么"},
    {"check.reason.shape", "its size, {}, is not the one that the other matrices give",
     "kích thước {} không phải kích thước mà các ma trận khác cho ra",
     "크기 {}이(가) 다른 행렬에서 나오는 크기와 다름", "其大小 {} 与其他矩阵得出的大小不同"},
    {"check.reason.sizes", "the sizes that it follows from are not given",
     "không cho các kích thước để suy ra nó", "이것을 정하는 크기가 주어지지 않음",
     "没有给出决定它的各个尺寸"},
    {"check.reason.too_much", "the note is too large to recompute everything in it",
     "ghi chú quá lớn để tính lại tất cả", "노트가 너무 커서 모두 다시 계산할 수 없음",
     "笔记太大，无法全部重新计算"},

    {"check.remark.bounded", "as exactly as the rounded numbers that it follows from allow",
     "trong phạm vi mà các số đã làm tròn trước đó cho phép",
     "앞서 반올림된 수가 허용하는 범위에서", "在前面已舍入的数字所允许的精度内"},
    {"check.remark.from_printed",
     "it follows from the printed numbers, some of which differ themselves",
     "suy ra đúng từ các số đã in, nhưng chính các số đó có chỗ khác",
     "적힌 수에서는 맞게 나오지만, 그 수 가운데 틀린 것이 있음",
     "由所写的数字可以得出，但那些数字本身有误"},
    {"check.remark.row_sums",
     "the scores are not given, but each row of attention weights has to add up to 1",
     "không cho điểm số, nhưng mỗi hàng trọng số chú ý phải có tổng bằng 1",
     "점수는 주어지지 않았지만 어텐션 가중치의 각 행은 합이 1이어야 함",
     "没有给出分数，但每行注意力权重之和应为 1"},
    {"check.remark.reshape", "a reshape keeps the number of elements",
     "đổi hình dạng phải giữ nguyên số phần tử", "모양을 바꿔도 원소의 수는 그대로여야 함",
     "改变形状时元素个数不变"},

    {"check.summary", "{} agree, {} differ, {} not checkable, {} given",
     "{} khớp, {} khác, {} không kiểm tra được, {} cho trước",
     "일치 {}, 불일치 {}, 확인 불가 {}, 주어진 값 {}",
     "一致 {}，不一致 {}，无法核对 {}，已给定 {}"},
    {"check.nothing", "{}: no numbers of attention found",
     "{}: không tìm thấy số liệu nào của cơ chế chú ý", "{}: 어텐션의 수를 찾지 못함",
     "{}：没有找到注意力的数字"},
};

}  // namespace

std::span<const Message> check_messages() noexcept { return kMessages; }

}  // namespace qkv
